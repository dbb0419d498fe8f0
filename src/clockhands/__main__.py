"""`python -m clockhands`: the command line, where the script is not on the path."""

from clockhands.cli import main

if __name__ == "__main__":
    main()
