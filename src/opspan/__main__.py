"""Runs the command line when Python is started with `python -m opspan`."""

from opspan.cli import main

if __name__ == "__main__":
    main()
