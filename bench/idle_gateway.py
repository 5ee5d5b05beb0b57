"""How much of a core an idle gateway uses, and its memory: `python -m bench.idle_gateway --boards 10 --seconds 60`.

The processor's time is the kernel's own count for the process (user and system), over the whole span after a start that
is left out. Linux only (/proc).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERMES = Path(sys.executable).with_name("hermes")
SETTLING = 5.0  # seconds after the start that do not count
BOUND = 0.5  # percent of a core (S6)


def main() -> int:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--boards", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runtime = Path(folder, "run")
        runtime.mkdir(mode=0o700)
        env = os.environ | {"HERMES_HOME": folder, "XDG_RUNTIME_DIR": str(runtime)}
        boards = [["boards", "create", f"board-{number}"] for number in range(given.boards - 1)]
        for words in (["init"], *boards):
            subprocess.run([HERMES, "kanban", *words, "-q"], env=env, check=True, stdout=subprocess.DEVNULL)
        gateway = subprocess.Popen([HERMES, "gateway", "start"], env=env, stderr=subprocess.DEVNULL)
        try:
            print(json.dumps(measured(gateway.pid, given.seconds) | {"boards": given.boards, "bound_percent": BOUND}))
        finally:
            gateway.send_signal(signal.SIGTERM)
            gateway.wait(10)
    return 0


def measured(pid: int, seconds: float) -> dict[str, float]:
    """Return the share of a core in percent, and the resident memory in MB."""
    time.sleep(SETTLING)
    before, began = _ticks(pid), time.monotonic()
    time.sleep(seconds)
    used = (_ticks(pid) - before) / os.sysconf("SC_CLK_TCK")
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    share = 100 * used / (time.monotonic() - began)
    return {"percent_of_a_core": round(share, 3), "memory_mb": round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)}


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


if __name__ == "__main__":
    sys.exit(main())
