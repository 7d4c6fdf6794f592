"""The live side: labels what a program does while it runs. Nothing here reads a trace.

A program that merely annotates needs no torch and no compiler: only sessions and `record_function` import torch.
`sinks`, `observer` and `python_frames` open opspan's native libraries. All other modules are plain Python.
"""
