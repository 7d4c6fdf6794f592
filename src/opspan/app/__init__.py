"""The work of commands that show no view. They run another program, run a script, examine the machine, or train the
demo."""
