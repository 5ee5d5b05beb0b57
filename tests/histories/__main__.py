"""One process of a race, started by `race.Race` with an explicit environment. SIGTERM ends it after its call."""

from __future__ import annotations

import argparse
from importlib import import_module

from tests.histories import doors
from tests.histories.doors import Door, Stop
from tests.histories.recorder import Recorder

# How a part is played, and the module that plays it.
STYLES = {
    "kept": "racer",
    "fresh": "racer",
    "commands": "commands",
    "tail": "watching",
    "look": "watching",
    "drain": "drain",
}


def main() -> None:
    """Play one part until told to stop."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--history", required=True)
    parser.add_argument("--label", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--skew", type=float, default=0.0)
    parser.add_argument("--style", choices=tuple(STYLES), required=True)
    given = parser.parse_args()
    stop = Stop()
    doors.skew(given.skew)
    door, recorder = Door(keep=given.style != "fresh"), Recorder(given.history, given.label)
    part = import_module(f"tests.histories.{STYLES[given.style]}")  # each start pays for its own part alone
    if given.style == "tail":
        part.follow(door, recorder, stop)
    elif given.style == "look":
        part.look(door, recorder, stop, given.seed)
    elif given.style == "drain":
        part.Drain(door, recorder, given.label).run()
    else:
        make = part.Commands if given.style == "commands" else part.Racer
        player = make(door, recorder, given.label, given.seed)
        while not stop.asked:
            player.step()


if __name__ == "__main__":
    main()
