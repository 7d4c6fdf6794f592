"""The live side: labels what a program does while it runs. Nothing here reads a trace.

The only package that imports torch, and only inside a session: a program that merely annotates needs no torch and no
compiler. Native code is called by `sinks` and `observer` alone; all else is plain Python over them.
"""
