"""One pass over one board: named phases in one tuple, each a function of what the pass sees (D2, habit 10).

A failure on one card is noted and does not stop the others.
"""

from __future__ import annotations

from hermes_kanban.base.errors import Refusal, Retryable, StateRefusal, StoreIo, StoreRefused
from hermes_kanban.dispatcher.reap import bridge_lives
from hermes_kanban.dispatcher.report import PassReport, reason
from hermes_kanban.model import admission
from hermes_kanban.model import status as s

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from hermes_kanban.base.settings import Settings
    from hermes_kanban.dispatcher.host import LocalHost
    from hermes_kanban.dispatcher.reap import Ended, Reaper
    from hermes_kanban.kernel.planning import Plan, Planned
    from hermes_kanban.kernel.reader import Reader
    from hermes_kanban.kernel.supervision import Supervision
    from hermes_kanban.model.run import Run

    class Hands(Protocol):
        """What a pass does outside of the database."""

        def start(self, planned: Planned) -> bool | str:
            """Start a worker: True, or why not now (`turn`, a kind of slot); False when the card is gone."""

        def close(self, run: Run) -> None:
            """Tell the shim that its run was closed by its worker: its grace begins (D14b)."""

        def stop(self, run: Run, reason: str) -> bool:
            """Tell the shim to end its worker; False when it was told long ago and does not do it."""

        def reaches(self, run: Run) -> bool:
            """Whether the shim took what it was told last."""

        def wants(self, *, more: bool) -> None:
            """Say whether there is more to start than room (fair turns, D7)."""


STALE_SILENCE = 3600  # seconds without a heartbeat (D16)
PREPARING, ANSWERING = 600, 15  # seconds for making a worktree, for answering a shim, beside a start's grace (D11)
UNTIL_FORCED = 30  # seconds that a shim has for enforcing max_runtime itself


class Sight:
    """What a pass sees, and what it has done so far.

    Args:
        board, reaper, host, hands, values: the parts.
        slug: of the board.
        now: epoch seconds.
        most: how many starts at most; None: no bound but the caps.
    """

    def __init__(
        self,
        slug: str,
        board: Supervision,
        reaper: Reaper,
        host: LocalHost,
        hands: Hands,
        values: Settings,
        now: int,
        most: int | None = None,
    ) -> None:
        self.slug, self.board, self.reaper, self.host, self.hands = slug, board, reaper, host, hands
        self.values, self.now, self.most = values, now, most
        self.runs: tuple[Run, ...] = ()
        self.started: list[dict[str, Any]] = []
        self.ended: list[dict[str, Any]] = []
        self.released: tuple[str, ...] = ()
        self.probed: tuple[str, ...] = ()
        self.errors: list[str] = []
        self.plan: Plan | None = None
        self.short = False  # something waits for a slot, which another process may give back without a word

    def note_end(self, found: Ended) -> None:
        """Note an end that this pass booked."""
        self.note_ended(found.run.id)

    def note_ended(self, run: int) -> None:
        """Note a run that has ended, and what became of its card."""
        after = self.board.run(run)
        status = self.board.task(after.task_id).status
        self.ended.append({"task": after.task_id, "run": run, "outcome": after.outcome, "status": status})

    def report(self) -> PassReport:
        """Return what the pass did and saw."""
        shown: dict[str, Any] = {}
        if self.plan:
            shown = _shown(self.plan) | _unanswered(self.board, self.plan, self.values, self.now)
        return PassReport(
            board=self.slug,
            started=tuple(self.started),
            ended=tuple(self.ended),
            released=self.released,
            probed=self.probed,
            errors=tuple(self.errors),
            **shown,
        )


def run(sight: Sight, phases: tuple[Callable[[Sight], None], ...] | None = None) -> PassReport:
    """Do a pass.

    Raises:
        Retryable, StoreRefused: the board cannot be used now.
    """
    for phase in phases or PHASES:
        phase(sight)
    return sight.report()


def each(sight: Sight, what: str, act: Callable[[], None]) -> None:
    """Do something about one card; what goes wrong with it is noted (D2)."""
    try:
        act()
    except (Retryable, StoreRefused):
        raise
    except Refusal as error:
        sight.errors.append(f"{what}: {error.message}")


def each_run(sight: Sight, run_: Run, act: Callable[[], None]) -> None:
    """The same about an attempt: a file of it that cannot be read is its own trouble, not the board's."""
    try:
        each(sight, run_.task_id, act)
    except StoreIo as error:  # where it is the board's own file, the next phase meets it too
        sight.errors.append(f"{run_.task_id}: {error.message}")


# --- the phases -----------------------------------------------------------------------------------------------
def collect(sight: Sight) -> None:
    """Book the ends of this host's runs (D2); others are judged by their lease alone (D3, C25)."""
    left: list[Run] = []
    for run_ in sight.board.watched():

        def one(found: Run = run_) -> None:
            ended = sight.reaper.collect(found) if sight.reaper.ours(found) else None
            if ended:
                sight.note_end(ended)
            else:
                left.append(found)

        each_run(sight, run_, one)
    sight.runs = tuple(left)


def check(sight: Sight) -> None:
    """Look after what lives: leases, silence, the time of its run, workers that outlive their card (D14 to D16)."""
    for run_ in sight.runs:
        if run_.pull and bridge_lives(run_):
            continue  # its bridge looks after it
        if sight.reaper.ours(run_):
            each_run(sight, run_, lambda found=run_: _look_after(sight, found))  # type: ignore[misc]
        elif run_.claim_expires < sight.now:
            each_run(sight, run_, lambda found=run_: _foreign(sight, found))  # type: ignore[misc]


def _foreign(sight: Sight, run_: Run) -> None:
    if sight.board.fell_silent(run_.id):
        sight.ended.append({"task": run_.task_id, "run": run_.id, "outcome": "reclaimed", "status": ""})


def _look_after(sight: Sight, run_: Run) -> None:
    word = _overdue(sight, run_)
    if word:
        _end(sight, run_, word)
    elif not run_.open:
        sight.hands.close(run_)
    elif run_.claim_expires <= sight.now:
        sight.board.extend(run_.id)


def _end(sight: Sight, run_: Run, word: str) -> None:
    """Have a run ended: by its shim, which keeps lock and slots until it is done, or by force where that is no help."""
    if sight.hands.stop(run_, word):
        return
    if sight.hands.reaches(run_) and sight.reaper.watched_over(run_):
        sight.board.defer(run_.id, word)  # what survives SIGKILL survives ours too (D14, C16)
    elif ended := sight.reaper.force(run_, word):
        sight.note_end(ended)


def _overdue(sight: Sight, run_: Run) -> str:
    """Return why a live worker is to be stopped, or "": a word of `exits.STOPS`."""
    if not run_.open:
        if run_.end_verb is None:
            return "override"
        grace = sight.values.number("closing_grace_seconds") + UNTIL_FORCED  # the shim ends it at the grace itself
        return "superseded" if sight.now - (run_.ended_at or sight.now) > grace else ""
    card = sight.board.task(run_.task_id)
    if run_.process_state == s.STARTING:
        preparing = PREPARING if card.workspace_kind == s.WORKTREE else ANSWERING
        grace = sight.values.number("spawn_grace_seconds") + preparing
        return "never_alive" if sight.now - run_.started_at > grace else ""
    longest = card.max_runtime_seconds or sight.values.number("max_runtime_seconds")
    if sight.now - run_.started_at > longest + UNTIL_FORCED:
        return "timed_out"
    silence = sight.values.number("dispatch_stale_timeout_seconds")
    silent = sight.now - max(run_.last_heartbeat_at or 0, run_.started_at) > STALE_SILENCE
    return "stale" if silence and silent and sight.now - run_.started_at > silence else ""


def by_time(sight: Sight) -> None:
    """Release what is due, and give tripped cards their fresh attempt (P27)."""
    if sight.board.anything_due():
        sight.released = sight.board.release_due()
        sight.probed = sight.board.probe()


def launch(sight: Sight) -> None:
    """Claim and start while caps allow, work and reviews alike (D2, C136)."""
    sight.plan = plan = sight.board.plan(sight.host, sight.most)
    blocked = False
    for planned in plan.starts:

        def one(found: Planned = planned) -> None:
            nonlocal blocked
            try:
                answer = sight.hands.start(found)
            except StateRefusal:  # somebody else was quicker, or a parent opened again: its turn comes
                return
            blocked = isinstance(answer, str)
            if answer is True:
                row = {"task": found.card.id, "name": found.lane.name, "lane": found.lane.lane}
                sight.started.append(row)

        each(sight, planned.card.id, one)
        if blocked:
            break
    scarce = plan.full is not None and plan.full.code == "host_cap" and plan.eager
    sight.hands.wants(more=blocked or scarce)
    sight.short = blocked or scarce or any(why.code == "lane_cap" for why in plan.names.values())


def guards(sight: Sight) -> None:
    """Record why single cards are left alone, once for each new reason (D7)."""
    found = tuple(one for one in (sight.plan.left if sight.plan else ()) if one.reason.code in admission.GUARDS)
    fresh = tuple(one for one in found if one.card.guard != one.reason.code)
    if fresh:
        sight.board.guard(fresh)


PHASES: tuple[Callable[[Sight], None], ...] = (collect, check, by_time, launch, guards)
SWEEP: tuple[Callable[[Sight], None], ...] = (collect, check)  # without starting anything


# --- the report -----------------------------------------------------------------------------------------------
def dry(slug: str, board: Reader, host: LocalHost, values: Settings, now: int, most: int | None) -> PassReport:
    """Return what a pass would start; everything is only read (D7, C139, C140)."""
    plan = board.plan(host, most)
    starts = tuple({"task": one.card.id, "name": one.lane.name, "lane": one.lane.lane} for one in plan.starts)
    return PassReport(slug, starts, **_shown(plan), **_unanswered(board, plan, values, now))


def _shown(plan: Plan) -> dict[str, Any]:
    waiting = tuple({"name": name} | reason(why) for name, why in plan.names.items() if why.code != "lane")
    left = tuple({"task": one.card.id} | reason(one.reason) for one in plan.left)
    return {"waiting": waiting, "left": left, "full": plan.full.text if plan.full else ""}


def _unanswered(board: Reader, plan: Plan, values: Settings, now: int) -> dict[str, Any]:
    """Return the names that nothing on this host answers for, and which of them wait too long (D5)."""
    if all(why.code != "lane" for why in plan.names.values()):
        return {}
    threshold = values.number("stranded_threshold_seconds")
    lost = [row for row in board.waiting() if row[0] in plan.names and plan.names[row[0]].code == "lane"]
    skipped = tuple({"name": name, "cards": count, "since": since} for name, count, since in lost)
    stranded = tuple(name for name, _, since in lost if now - since > threshold)
    return {"skipped_nonspawnable": skipped, "stranded_in_ready": stranded}
