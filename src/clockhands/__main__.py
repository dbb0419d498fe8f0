"""`python -m clockhands`: the command line, for when the ``clockhands`` script is not on the path."""

from clockhands.cli import main

if __name__ == "__main__":
    main()
