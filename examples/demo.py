"""`make demo`: real work through a board in a temporary home, by workers that the gateway starts when they are needed.

Four analysts measure packages of Python's standard library at the same time, a synthesiser waits for all four and
writes a report, a reviewer sends it back once, a bridge has a plain program make a page of it. On the way one worker
is killed, one finds its provider overloaded (exit code 75), one forgets to close its card, and one asks a person, whom
this program plays. Nobody looks after them but the board. In the end everything is checked.

Exit codes: 0 all is as it must be, 1 something is not (each thing is named), 130 interrupted.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import NoReturn

from examples.checks import problems, report_path
from examples.crew import News
from examples.history import hand_over_lines, run_lines
from examples.kanban_cli import HERMES, Refused
from examples.plan import BOARD
from examples.play import Play


def main() -> int:
    """Run the demonstration; return the exit code."""
    signal.signal(signal.SIGTERM, _terminated)
    if not Path(HERMES).exists():
        print(f"error: there is no {HERMES}\nhint: run `make install` first", file=sys.stderr)
        return 1
    play = Play(Path(tempfile.mkdtemp(prefix="hermes-demo-")))
    try:
        return _show(play)
    except KeyboardInterrupt:
        print("\ninterrupted; every process of the demonstration is stopped", file=sys.stderr)
        return 130
    except Refused as refused:
        print(f"error: {refused}", file=sys.stderr)
        return 1
    finally:
        print(f"the board is kept in {play.home}")


def _show(play: Play) -> int:
    """Let the play run, stop what it started whatever happens, judge it."""
    try:
        play.set_up()
        print(f"look on from elsewhere: HERMES_HOME={play.home} {HERMES} kanban --board {BOARD} board --watch")
        wrong = _perform(play)
    finally:
        exit_codes = _stopped(play)
    return _judge(play, wrong, exit_codes)


def _stopped(play: Play) -> dict[str, int]:
    """Stop gateway and bridge; a second Ctrl-C must not keep us from it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return play.stop()
    finally:
        signal.signal(signal.SIGINT, before)


def _perform(play: Play) -> list[str]:
    """Return what kept the play from its end."""
    news = News(BOARD, play.env)
    try:
        with play.screen:
            play.make_cards()
            play.perform(news)
    except (TimeoutError, EOFError) as fault:
        return [str(fault)]
    finally:
        code = news.stop()
    return [f"`watch` ended with {code} after Ctrl-C, not with 0"] if code else []


def _judge(play: Play, wrong: list[str], exit_codes: dict[str, int]) -> int:
    """Print the end of the play, and say whether all is as it must be."""
    ending = play.ending(exit_codes)
    wrong = [*wrong, *problems(play.board, ending)]
    print("\nattempts")
    print(*run_lines(ending.runs, play.titles, play.screen.start_ms), sep="\n")
    print("\nhand-overs: until the claim, the worker's process (at_ms of the events), its program at work (own clock)")
    print(*hand_over_lines(ending.hand_overs(), play.titles), sep="\n")
    print(f"\nreport: {report_path(ending) or 'none'}")
    for problem in wrong:
        print(f"not as it must be: {problem}")
    print(f"logs of gateway and bridge: {play.logs}" if wrong else "all is as it must be")
    return 1 if wrong else 0


def _terminated(_number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(143)


if __name__ == "__main__":
    sys.exit(main())
