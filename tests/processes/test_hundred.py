"""A hundred cards in a storm of deaths: each is worked on by one at a time, and all come where they belong (T5, T1).

`python -m tests.processes.soak` does it for as long as told.
"""

from __future__ import annotations

from pathlib import Path

from tests.processes import storm
from tests.processes.home import home


def test_a_hundred_cards_in_a_storm(tmp_path: Path) -> None:  # P10, P14c, D2, D13, D14b, C46
    with home(tmp_path, storm.LANES, **storm.VALUES) as here:
        report = storm.Storm(here, seed=1).run(cards=100, hits=40, seconds=240)
    assert report.faults == [], report.text()
    assert report.cards == 100
    assert sum(report.hits.values()) >= 20
