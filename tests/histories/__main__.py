"""One process of a race, started by `race.Race` with an explicit environment. SIGTERM ends it after its call."""

from __future__ import annotations

import argparse

from tests.histories import commands, doors, drain, racer, watching
from tests.histories.doors import Door, Stop
from tests.histories.recorder import Recorder

STYLES = ("kept", "fresh", "commands", "tail", "look", "drain")


def main() -> None:
    """Play one part until told to stop."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--history", required=True)
    parser.add_argument("--label", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--skew", type=float, default=0.0)
    parser.add_argument("--style", choices=STYLES, required=True)
    given = parser.parse_args()
    stop = Stop()
    doors.skew(given.skew)
    door, recorder = Door(keep=given.style != "fresh"), Recorder(given.history, given.label)
    if given.style == "tail":
        watching.follow(door, recorder, stop)
    elif given.style == "look":
        watching.look(door, recorder, stop, given.seed)
    elif given.style == "drain":
        drain.Drain(door, recorder, given.label).run()
    else:
        make = commands.Commands if given.style == "commands" else racer.Racer
        player = make(door, recorder, given.label, given.seed)
        while not stop.asked:
            player.step()


if __name__ == "__main__":
    main()
