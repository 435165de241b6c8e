"""``python -m optdb``: the command line. See ``optdb.cli``."""

from optdb.cli import main

if __name__ == "__main__":
    main()
