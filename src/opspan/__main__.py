"""`python -m opspan`: the command line."""

from opspan.cli import main

if __name__ == "__main__":
    main()
