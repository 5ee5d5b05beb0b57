"""Asks the board from wherever it was started: does the commands of a plan, and writes down what came of each.

    python -I probe.py PLAN      PLAN is JSON: {"lines": [[word, …], …], "variables": {…}, "below": pid, "called": name}

`variables` are set where they are missing (a worker may have lost them), `below` is the process that must have adopted
it before it begins (0: anybody), `called` the name that it gives itself. The answer goes to `PLAN.done`: how it stood
(`parent`, `tty`, `marks`: the HERMES variables that it was left with) and exit code and words of each line. It needs
nothing but the standard library.
"""

import ctypes
import json
import os
import subprocess
import sys
import time

PATIENCE = 20.0
SET_NAME = 15  # of prctl
ARGUMENTS_BEGIN, ARGUMENTS_END = 45, 46  # fields of /proc/self/stat behind the name


def be_called(name: str) -> None:
    """Take on another name, in both places where one is kept: only the process itself can."""
    ctypes.CDLL(None).prctl(SET_NAME, name.encode(), 0, 0, 0)
    with open("/proc/self/stat", encoding="utf-8") as handle:
        fields = handle.read().rpartition(")")[2].split()
    begin, end = int(fields[ARGUMENTS_BEGIN]), int(fields[ARGUMENTS_END])
    ctypes.memset(begin, 0, end - begin)
    ctypes.memmove(begin, name.encode(), len(name))


def wait_for_parent(pid: int) -> None:
    """Wait until the process that started us is gone and this one has adopted us."""
    deadline = time.monotonic() + PATIENCE
    while pid and os.getppid() != pid and time.monotonic() < deadline:
        time.sleep(0.005)


def do(words: list[str], environment: dict[str, str]) -> dict[str, object]:
    given = None if os.isatty(0) else subprocess.DEVNULL
    said = subprocess.run(words, env=environment, stdin=given, capture_output=True, timeout=PATIENCE, check=False)
    return {"code": said.returncode, "said": (said.stdout + said.stderr).decode("utf-8", "replace")}


def main(path: str) -> None:
    with open(path, encoding="utf-8") as handle:
        plan = json.load(handle)
    marks = sorted(name for name in os.environ if name.startswith("HERMES_"))
    if plan["called"]:
        be_called(plan["called"])
    wait_for_parent(plan["below"])
    report = {"parent": os.getppid(), "tty": os.isatty(0), "marks": marks}
    report["lines"] = [do(words, plan["variables"] | os.environ) for words in plan["lines"]]
    with open(f"{path}.half", "w", encoding="utf-8") as handle:
        json.dump(report, handle)
    os.rename(f"{path}.half", f"{path}.done")


if __name__ == "__main__":
    main(sys.argv[1])
