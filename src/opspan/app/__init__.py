"""The work of commands that show no view: run another program, run a script, examine the machine, train the demo."""
