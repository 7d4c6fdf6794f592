"""Adds a tab to TensorBoard: `tensorboard --logdir log` shows the report of every trace in the folder. This package
needs `opspan[tensorboard]`. TensorBoard finds the tab through opspan's entry point tensorboard_plugins.

    plugin.py   answers TensorBoard's requests over HTTP; no other file uses TensorBoard
    runs.py     finds the traces in the folder, as runs, spans and workers
    pages.py    keeps the requested pages, and starts a process to make each of them
    work.py     runs in such a process, and makes the page
"""
