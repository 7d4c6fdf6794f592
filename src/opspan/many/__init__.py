"""Many files, each of which is a rank: they are analysed one by one, in processes, and only what an answer needs comes
together. `opspan.load` reads a few files as one trace, and all of it at once.

    files.py      which files a folder, a pattern and a path mean
    task.py       what is asked of some files, and what each of them answers: all that goes through an executor
    asking.py     tasks to an executor, a few at a time, and answers in the order of the files
    processes.py  the executor of one machine: processes that never import a user's program
    worker.py     what runs in such a process
    together.py   what all files said, put together
    ranks.py      load_many and Ranks, which a user holds
"""

FEW = 4  # as many files are read as one trace, or in this process, unless something else is said
