"""Reads the file formats of all sources into columns: SQLite, Chrome traces, Parquet, Arrow, compressed files, NVTX
payloads.

budget.py limits the time and memory that a file may cost. boundary.py turns errors of any kind into ReadError. The
readers (readers/) know what the columns of each source mean.
"""
