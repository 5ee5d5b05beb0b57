"""Processes of a race that only look: one follows the log, one reads cards and columns as a dashboard does."""

from __future__ import annotations

import random
import time

from hermes_kanban.base.errors import NotFound
from hermes_kanban.kernel.board import Board
from hermes_kanban.kernel.query import Filter
from tests.histories.doors import Door, Stop
from tests.histories.recorder import Recorder

TAIL_PAGE = 200
PAUSE = 0.05
WHOLE = 40  # looks between two comparisons of the whole board with its log


def follow(door: Door, recorder: Recorder, stop: Stop) -> None:
    """Read the log by id, as `watch` does, and note what was read (P80)."""
    board = door.board()
    feed = board.feed()
    last = board.last_event_id()
    try:
        while not stop.asked:
            read = _page(board, recorder, last)
            if read <= last:
                feed.wait(0.2)
            last = read
        there = board.last_event_id()
        while (read := _page(board, recorder, last)) > last:
            last = read
        recorder.note("tail_end", there=there, read=last)
    finally:
        feed.close()


def _page(board: Board, recorder: Recorder, last: int) -> int:
    ids = [event.id for event in board.events(since=last, limit=TAIL_PAGE)]
    if ids:
        recorder.note("tail", after=last, ids=ids)
    return ids[-1] if ids else last


def look(door: Door, recorder: Recorder, stop: Stop, seed: int) -> None:
    """Read what a dashboard reads; note each answer that is not whole in itself (P1, P2, P81)."""
    dice, board, looks = random.Random(seed), door.board(), 0
    while not stop.asked:
        looks += 1
        cards = board.list(Filter(archived=True, sort="newest", limit=30)).cards
        if cards:
            _card(board, recorder, dice.choice(cards).task.id)
        _columns(board, recorder)
        if looks % WHOLE == 0:
            for finding in board.verify():
                recorder.note("torn", task=finding.task_id, text=f"verify: {finding.problem}")
        time.sleep(PAUSE)


def _card(board: Board, recorder: Recorder, card: str) -> None:
    try:
        shown = board.show(card, events=5)
    except NotFound:
        return
    task = shown.task
    running = [run.id for run in shown.runs if run.open]
    if running != ([task.current_run_id] if task.current_run_id else []) or bool(running) != (task.status == "running"):
        text = f"{card} is {task.status}, holds run {task.current_run_id}, its open runs are {running}"
        recorder.note("torn", task=card, text=text)


def _columns(board: Board, recorder: Recorder) -> None:
    for column in board.columns(10):
        wrong = [listed.task.id for listed in column.cards if listed.task.status != column.status]
        if wrong or column.count < len(column.cards):
            recorder.note("torn", task=None, text=f"column {column.status} of {column.count} shows {wrong}")
