"""`python -m hermes_kanban` is the command `hermes`."""

import sys

from hermes_kanban.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
