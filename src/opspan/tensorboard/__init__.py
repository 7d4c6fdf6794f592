"""The tab in TensorBoard: `tensorboard --logdir log` shows the report of every trace in the folder. It needs
`opspan[tensorboard]`. TensorBoard finds the tab by its entry point.

    plugin.py   answers TensorBoard's requests over HTTP: the only file that knows TensorBoard
    runs.py     finds the traces in the folder: runs, spans, workers
    pages.py    keeps the pages that were asked for, each made by a process of its own
    work.py     is that process
"""
