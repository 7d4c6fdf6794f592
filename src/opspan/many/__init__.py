"""Analyses many files one by one in several processes, and keeps only what an answer needs. Each file is a rank. In
contrast, `opspan.load` reads a few files as one trace, and keeps the whole trace in memory.

    files.py      finds the files of a folder, a pattern or a path
    task.py       defines tasks and answers, the only data that executors transfer
    asking.py     sends tasks to an executor, a few at a time, and yields answers in the order of the files
    processes.py  defines the executor for one machine, whose processes never import a user's program (opspan/workers)
    together.py   adds up the answers of all files
    ranks.py      defines load_many, and Ranks, the object that load_many returns
"""

# If there are at most this many files, the command line reads them as one trace, and load_many reads them in this
# process if they are also small. The user can choose otherwise.
FEW = 4
