"""Implements the commands whose result is not an analysis of a trace: they run another program or a script, examine the
machine, or train the demo."""
