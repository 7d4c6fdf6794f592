"""The live side: labels what a program does while it runs. Nothing here reads a trace.

This is the only package that imports torch, and it does so only inside a session. So a program that merely annotates
needs no torch and no compiler. Only `sinks` and `observer` call native code. All other modules are plain Python.
"""
