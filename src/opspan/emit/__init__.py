"""The live side: labels what a program does while it runs. Nothing here reads a trace.

The only room that imports torch, and only inside a session: a program that merely annotates needs no torch and no
compiler. `sinks` and `observer` are the two doors to native code; all else is plain Python over them.
"""
