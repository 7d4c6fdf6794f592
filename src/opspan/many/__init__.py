"""Analyses many files one by one in several processes, and keeps only what an answer needs. Each file is a rank. In
contrast, `opspan.load` reads a few files as one trace, and all of that trace at once.

    files.py      the files that a folder, a pattern or a path stands for
    task.py       tasks and the answers of files: all that goes through an executor
    asking.py     sends tasks to an executor, a few at a time, and yields answers in the order of the files
    processes.py  the executor of one machine: processes that never import a user's program (opspan/workers)
    together.py   the sum of the answers of all files
    ranks.py      load_many and Ranks, which a user holds
"""

FEW = 4  # the most files that are read as one trace, or in this process, unless the user chooses otherwise
