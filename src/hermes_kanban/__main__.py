"""The command `hermes`, also as `python -m hermes_kanban`."""

from __future__ import annotations

import gc
import sys

from hermes_kanban.base import lazy

INTERRUPTED = 130


def main() -> int:
    """Run the command line; return the exit code.

    Collecting garbage costs a short command a tenth of its time and frees nothing: most of what it makes are
    modules. Commands that last switch it on again (`cli/app.py`).
    """
    gc.disable()
    try:
        code: int = lazy.module("hermes_kanban.cli.app").main()
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


if __name__ == "__main__":
    sys.exit(main())
