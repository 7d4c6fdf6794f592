"""How bytes become columns, whoever wrote them: SQLite, Chrome traces, Parquet, Arrow, compressed files, NVTX payloads.

What a file may cost is in budget.py, what it may not do in boundary.py. Which column of which source means what is not
known here: that is readers/.
"""
