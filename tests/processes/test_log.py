"""A gateway whose log nobody takes goes on (D9)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes.home import home, worker

FULL = "/dev/full"


@pytest.mark.skipif(not os.path.exists(FULL), reason="there is no /dev/full here")
def test_a_full_disk_under_the_log_stops_no_card(tmp_path: Path) -> None:  # D9
    with home(tmp_path, {"coder": worker("complete")}) as here, open(FULL, "wb") as full:
        hermes = Path(sys.executable).with_name("hermes")
        gateway = subprocess.Popen([hermes, "gateway", "start"], env=here.hermes.env, stderr=full)
        try:
            task = here.create(lane="coder")
            here.until(lambda: here.hermes.status(task) == "done")
            assert gateway.poll() is None
        finally:
            gateway.send_signal(signal.SIGTERM)
            assert gateway.wait(20) == 0
