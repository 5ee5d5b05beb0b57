"""One call of a verb: its values, the board that it means, and how its answer goes out."""

from __future__ import annotations

from hermes_kanban import boards, compose
from hermes_kanban.base.clock import SystemClock
from hermes_kanban.base.errors import Refusal, Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from hermes_kanban.cli.output import Output
    from hermes_kanban.cli.parse import Parsed
    from hermes_kanban.compose import Environment
    from hermes_kanban.kernel.board import Board
    from hermes_kanban.kernel.reader import Reader
    from hermes_kanban.kernel.verbs import Verb
    from hermes_kanban.model.task import Task

    Act = Callable[[str], tuple[Task, dict[str, Any]]]

NOBODY = "none"  # the word for nobody, where a name is expected
_UNEXPECTED = 1


class Call:
    """What a verb's handler gets.

    Args:
        verb: the declaration.
        parsed: the values.
        env: the environment, read once.
        out: where the answer goes.
    """

    def __init__(self, verb: Verb, parsed: Parsed, env: Environment, out: Output) -> None:
        self.verb = verb
        self.values = parsed.values
        self.board_name = parsed.board
        self.env = env
        self.out = out
        self._place: boards.Place | None = None
        self._board: Board | None = None
        self._reader: Reader | None = None

    def __getitem__(self, name: str) -> Any:
        """Return the value of a parameter (None: not given)."""
        return self.values[name]

    @property
    def now(self) -> int:
        """Epoch seconds, for ages."""
        return SystemClock().now_ms() // 1000

    def usage(self, message: str, hint: str = "") -> Usage:
        """Build the refusal of a call that contradicts itself."""
        return Usage(message, hint=hint or f"`hermes kanban {self.verb.name} --help` explains the options")

    def start_time(self) -> int | None:
        """Return the instant that `--at` or `--in` gives.

        Raises:
            Usage: both are given.
        """
        at: int | None = self.values["at"]
        span: int | None = self.values["in"]
        if at is not None and span is not None:
            raise self.usage("--at and --in say the same thing", hint="give one of them")
        return at if at is not None else span

    # --- the board ---------------------------------------------------------------------------------------------
    @property
    def place(self) -> boards.Place:
        """The board that is meant.

        Raises:
            BoardNotFound: it is not there.
        """
        if self._place is None:
            chosen = boards.choose(self.env.home, self.board_name, self.env.variables)
            self._place = chosen.place
            self.out.warn([chosen.warning] if chosen.warning else [])
        return self._place

    def reader(self) -> Reader:
        """Open the board to look at it."""
        if self._reader is None:
            self._reader = compose.open_reader(self.env, self.place)
            self.out.warn(self._reader.warnings)
        return self._reader

    def board(self, *tasks: str) -> Board:
        """Open the board for a verb that writes.

        Args:
            tasks: the cards that it is about, as they were named.
        """
        if self._board is None:
            self._board = compose.open_board(self.env, self.place, write=True, tasks=tasks)
        return self._board

    # --- answers -----------------------------------------------------------------------------------------------
    def warn_of_board(self) -> None:
        """Print what the kernel warned of."""
        if self._board is not None:
            self.out.warn(self._board.warnings)

    def changed(self, card: Task, document: dict[str, Any], *notes: str) -> int:
        """Answer a write on one card: `ID state`, the row, or the id."""
        self.warn_of_board()
        for note in notes:
            self.out.note(note)
        self.out.answer(document, f"{card.id} {card.status}", [card.id])
        return 0

    def each(self, ids: tuple[str, ...], act: Act) -> int:
        """Do a verb on several cards: each is reported, a failure does not stop the others, the worst code counts.

        Args:
            act: does it on one card; returns the card and the document.
        """
        if len(ids) == 1:
            card, document = act(ids[0])
            return self.changed(card, document)
        documents: list[dict[str, Any]] = []
        codes = [0]
        for task in ids:
            try:
                card, document = act(task)
            except Refusal as error:
                codes.append(error.exit_code)
                documents.append({"id": task, "error": error.as_dict()})
                self.out.refuse_one(task, error)
                continue
            documents.append(document)
            self.warn_of_board()
            if not self.out.json:
                self.out.answer(document, f"{card.id} {card.status}", [card.id])
        if self.out.json:
            self.out.answer(documents, "")
        return worst(codes)


def worst(codes: list[int]) -> int:
    """Return the worst of several exit codes: a fault of ours before all, else the highest."""
    return _UNEXPECTED if _UNEXPECTED in codes else max(codes)


def nobody(name: str | None) -> str | None:
    """Return a name as the kernel wants it: `none` is nobody."""
    return None if name == NOBODY else name
