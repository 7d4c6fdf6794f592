"""What the command line does that is no view: run another program, run a script, look at the machine, the demo."""
