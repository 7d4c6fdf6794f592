"""The tab in TensorBoard: `tensorboard --logdir log` shows the report of every trace in the folder. Needs
`opspan[tensorboard]`; TensorBoard finds it by its entry point.

    plugin.py   what TensorBoard asks for, over HTTP: the only file that knows TensorBoard
    runs.py     which traces lie in the folder: runs, spans, workers
    pages.py    the pages that were asked for, each made by a process of its own
    work.py     that process
"""
