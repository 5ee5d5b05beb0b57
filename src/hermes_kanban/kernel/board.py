"""Board: the one facade. Every surface calls these methods, one per verb, and adds only parsing and printing.

A write is one transaction (P1): the caller is identified and its right checked inside of it, the handler runs,
and the answer is given after the commit.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress

from hermes_kanban.base.errors import ClaimLost, NothingReady, Refusal, WorkspaceFailed
from hermes_kanban.base.lazy import late
from hermes_kanban.base.limits import in_range
from hermes_kanban.kernel import claim, fence, find, release, values
from hermes_kanban.kernel.apply import append_event
from hermes_kanban.kernel.caller import Caller, identify, without_card
from hermes_kanban.kernel.claim import ClaimRequest
from hermes_kanban.kernel.context import Context
from hermes_kanban.kernel.reader import Ports, Reader
from hermes_kanban.model import status as s
from hermes_kanban.model.actors import BY_RUN, Actor, require
from hermes_kanban.model.claim import Claim
from hermes_kanban.model.run import Run
from hermes_kanban.model.task import Task, TaskDraft

TYPE_CHECKING = False
if not TYPE_CHECKING:
    attach, block, create, edit, finish, links, review, thread = late(
        "hermes_kanban.kernel.attach",
        "hermes_kanban.kernel.block",
        "hermes_kanban.kernel.create",
        "hermes_kanban.kernel.edit",
        "hermes_kanban.kernel.finish",
        "hermes_kanban.kernel.links",
        "hermes_kanban.kernel.review",
        "hermes_kanban.kernel.thread",
    )
else:
    from collections.abc import Callable, Iterator
    from typing import Any

    from hermes_kanban.base.settings import Settings
    from hermes_kanban.kernel import attach, block, create, edit, finish, links, review, thread
    from hermes_kanban.kernel.attach import Attached, Source
    from hermes_kanban.kernel.create import Created
    from hermes_kanban.kernel.finish import Closed, Handoff
    from hermes_kanban.model.blocks import Reason
    from hermes_kanban.model.thread import Comment
    from hermes_kanban.store.driver import Store, Transaction


class Board(Reader):
    """One board as one caller sees it: the reads of `Reader`, and the verbs that write.

    Args:
        store: the board's store.
        settings: the values of `kanban:`.
        caller: facts about who calls; the kernel decides from them who that is (P70).
        ports: names, workspaces, this host.
    """

    def __init__(self, store: Store, settings: Settings, caller: Caller, ports: Ports) -> None:
        super().__init__(store, settings, ports.names, ports.host)
        self._ports = ports
        self._caller = caller
        self._acting: Actor | None = None

    @contextmanager
    def _verb(
        self, verb: str, task: str | None = None, run: int | None = None, *, durable: bool = True
    ) -> Iterator[tuple[Context, Task]]:
        """Open the transaction of a verb on one card: who calls, may they, and the card as it is now."""
        lost: ClaimLost | None = None
        found_id: str | None = None
        try:
            with self._store.write(durable=durable) as tx:
                card = find.task(tx, task) if task is not None else _NO_CARD
                found_id = card.id if task is not None else None
                ctx = self._context(tx, verb, found_id, run)
                if found_id is not None:
                    fence.within_run(ctx, card, verb)
                yield ctx, card
        except ClaimLost as error:
            lost = error
            lost.fields = {"verb": verb, "task_id": found_id or task} | lost.fields
        if lost is not None:
            with suppress(Refusal):  # a disk that is full hides the note, not the reason
                self._log_refusal(lost)
            raise lost

    def _context(self, tx: Transaction, verb: str, task_id: str | None, run: int | None = None) -> Context:
        known_by = None if verb == "claim" else task_id  # a new claim stands on no earlier one (P10)
        who = identify(tx, self._caller, known_by, run, by_run=verb in BY_RUN)
        self._acting = who.actor
        require(who.actor, verb, task_id)
        return Context(tx, who.actor, self._settings, who.fence, who.implicit, self.warnings)

    def _log_refusal(self, lost: ClaimLost) -> None:
        """Leave one `refused` event per run and verb, with a count (P12)."""
        facts = lost.fields
        if facts.get("task_id") is None:
            return
        shown = facts.get("run_shown")
        with self._store.write(durable=False) as tx:
            key = {"task_id": facts["task_id"], "run_id": shown, "verb": facts["verb"]}
            if tx.run("events.count_refusal", **key):
                return
            payload = {"verb": facts["verb"], "code": lost.code, "run_shown": shown, "count": 1}
            append_event(
                Context(tx, self._acting or without_card(self._caller), self._settings),
                "refused",
                facts["task_id"],
                payload,
                run_id=shown,
            )

    # --- create ------------------------------------------------------------------------------------------
    def create(self, draft: TaskDraft) -> Created:
        """Make one task with its parents (P50 to P52)."""
        self._check_place(draft)
        with self._verb("create") as (ctx, _):
            return create.create(ctx, draft, self._ports.names)

    def apply(self, drafts: tuple[TaskDraft, ...], *, dry_run: bool = False) -> tuple[Created, ...]:
        """Make a graph of tasks in one transaction (P53); a dry run answers the same and keeps nothing."""
        for draft in drafts:
            self._check_place(draft)
        answer: tuple[Created, ...] = ()
        try:
            with self._verb("apply") as (ctx, _):
                answer = create.apply(ctx, drafts, self._ports.names, dry_run=dry_run)
                if dry_run:
                    raise _Undo
        except _Undo:
            return answer
        return answer

    def _check_place(self, draft: TaskDraft) -> None:
        values.workspace_kind(draft.workspace_kind)
        self._ports.workspaces.check(draft.workspace_kind, draft.workspace_path, draft.branch_name)

    # --- claim and work ----------------------------------------------------------------------------------
    def claim(
        self,
        task: str | None = None,
        *,
        ttl: int | None = None,
        review: bool = False,
        assignee: str | None = None,
        wait: float | None = None,
    ) -> Claim:
        """Claim a card by its id, or the next one that fits; prepare its workspace; answer (P10 to P16).

        Args:
            task: an id, or None for the next card.
            ttl: seconds; None: `kanban.claim_ttl_seconds`.
            review: take the next review instead of the next ready card.
            assignee: only cards of this name; also the claimer's name when it declared none.
            wait: how many seconds to wait for a card to be there.

        Raises:
            NothingReady: there is no such card (within the wait).
            NotClaimable, Gated, WrongState, SelfReview: this card cannot be claimed by this caller.
            WorkspaceFailed: the workspace could not be prepared; nothing is left running.
            ClaimLost: the card was taken from the claimer while its workspace was prepared.
        """
        seconds = in_range("ttl", ttl if ttl is not None else self._settings.number("claim_ttl_seconds"))
        name = self._caller.name if self._caller.declared else assignee if assignee != "none" else None
        request = ClaimRequest(seconds, self._ports.host, self._caller.pid, self._place, name)
        attempt: Callable[[], tuple[Task, Run] | None]
        if task is not None:
            attempt = lambda: self._claim_one(task, request)  # noqa: E731
        else:
            attempt = lambda: self._claim_next(request, review=review, assignee=assignee)  # noqa: E731
        taken = attempt() if wait is None or task is not None else self._wait_for(attempt, wait)
        if taken is None:
            whom = f" for {assignee}" if assignee else ""
            wait_hint = "`--wait SECONDS` waits for a card; " if wait is None else ""
            raise NothingReady(f"nothing is ready{whom}", hint=f"{wait_hint}`list` shows what waits, `why ID` why")
        return self._prepare(*taken)

    def _wait_for(self, attempt: Callable[[], tuple[Task, Run] | None], wait: float) -> tuple[Task, Run] | None:
        feed = self._store.feed()
        try:
            left = wait
            while True:
                taken = attempt()
                if taken is not None or left <= 0:
                    return taken
                step = min(left, _RECHECK)
                before = feed.monotonic()
                feed.wait(step)
                left -= feed.monotonic() - before
        finally:
            feed.close()

    def _claim_one(self, task: str, request: ClaimRequest) -> tuple[Task, Run]:
        with self._verb("claim", task) as (ctx, card):
            taken = claim.take(ctx, card, request)
        if isinstance(taken, Refusal):
            raise taken
        return taken

    def _claim_next(self, request: ClaimRequest, *, review: bool, assignee: str | None) -> tuple[Task, Run] | None:
        if not self._anything(request, review=review, assignee=assignee):
            return None
        with self._verb("claim") as (ctx, _):
            name = request.name or ctx.actor.name
            while card := claim.next_card(ctx, request.host, review=review, assignee=assignee, name=name):
                taken = claim.take(ctx, card, request)
                if not isinstance(taken, Refusal):
                    return taken
        return None

    def _anything(self, request: ClaimRequest, *, review: bool, assignee: str | None) -> bool:
        """Look before taking the write lock: a waiting claimer must not stand in the writers' queue for nothing."""
        with self._store.read() as tx:
            if tx.one("claims.is_due", now=tx.now):
                return True
            ctx = Context(tx, identify(tx, self._caller, None).actor, self._settings)
            name = request.name or ctx.actor.name
            return claim.candidate(ctx, request.host, review=review, assignee=assignee, name=name) is not None

    def _place(self, card: Task) -> str:
        return self._ports.workspaces.path_for(card.id, card.workspace_kind, card.workspace_path, card.branch_name)

    def _prepare(self, card: Task, run: Run) -> Claim:
        """Make the workspace outside of the write lock, then let the claimer know (P11)."""
        try:
            place = self._ports.workspaces.prepare(card.id, card.workspace_kind, card.workspace_path, card.branch_name)
        except WorkspaceFailed as error:
            with self._store.write() as tx:
                claim.unprepared(self._context(tx, "claim", card.id), run, error)
            raise
        with self._store.write(durable=False) as tx:
            claim.prepared(self._context(tx, "claim", card.id), run)
            return Claim(find.task(tx, card.id), find.run(tx, run.id), place)

    def give_back(self, made: Claim, error: Refusal) -> None:
        """End a claim that its claimer could not be given: without its ticket nobody could go on with it (P12b)."""
        with self._store.write() as tx:
            claim.unprepared(self._context(tx, "claim", made.task.id), made.run, error, s.TICKET)

    def heartbeat(
        self, task: str, note: str | None = None, *, run: int | None = None
    ) -> tuple[Run, tuple[Comment, ...]]:
        """Extend the caller's claim; also returns the comments that its run has not seen (P13, P62b)."""
        with self._verb("heartbeat", task, run, durable=False) as (ctx, card):
            return claim.heartbeat(ctx, card, values.text_value("note", note))

    def comment(self, task: str, body: str, author: str | None = None, *, run: int | None = None) -> thread.Commented:
        """Add a fact to a card's thread (P60)."""
        with self._verb("comment", task, run) as (ctx, card):
            text = values.text_value("comment", body)
            return thread.comment(ctx, card, text or "", values.name("author", author))

    def attach(
        self,
        task: str,
        files: tuple[Source, ...] = (),
        *,
        url: str | None = None,
        name: str | None = None,
        run: int | None = None,
    ) -> Attached:
        """Add files (paths, or the bytes themselves) and what a URL gives to a card, all or none (P61)."""
        return attach.attach(self._verb, self._ports, task, attach.Wanted(files, url, name), run)

    def detach(self, task: str, attachment: int) -> Attached:
        """Remove an attachment and its file (a person's)."""
        return attach.detach(self._verb, self._ports, task, attachment, self.warnings)

    # --- endings -----------------------------------------------------------------------------------------
    def complete(
        self, task: str, handoff: Handoff, *, run: int | None = None, override: bool = False, bulk: bool = False
    ) -> Closed:
        """Finish a card (P12, P21, P22); in the same step children are promoted, artifacts kept (P4, D20)."""
        files = attach.artifacts(self._verb, self._ports, task, handoff.artifacts, run=run, override=override)
        with files as kept, self._verb("complete", task, run) as (ctx, card):
            done = finish.complete(ctx, card, _handoff(handoff), kept.files, override=override, bulk=bulk)
            kept.name(done.attachments)
        return done

    def request_review(
        self,
        task: str,
        handoff: Handoff,
        reviewer: str | None = None,
        *,
        run: int | None = None,
        override: bool = False,
    ) -> Closed:
        """Hand a card over for a verdict (P30)."""
        with self._verb("request-review", task, run) as (ctx, card):
            values.known_name(ctx, self._ports.names, "reviewer", reviewer)
            return finish.request_review(ctx, card, _handoff(handoff), reviewer, override=override)

    def request_changes(self, task: str, text: str, *, run: int | None = None, override: bool = False) -> Closed:
        """Send a card back to its implementer (P31)."""
        with self._verb("request-changes", task, run) as (ctx, card):
            return review.request_changes(ctx, card, values.text_value("text", text) or "", override=override)

    def block(
        self, task: str, reason: Reason, kind: str | None = None, *, run: int | None = None, override: bool = False
    ) -> Closed:
        """Park a card until somebody decides or helps (P24, P25)."""
        with self._verb("block", task, run) as (ctx, card):
            values.text_value("reason", reason.text)
            return block.block(ctx, card, reason, kind, override=override)

    # --- people ------------------------------------------------------------------------------------------
    def unblock(self, task: str, answer: str | None = None) -> Task:
        """Release a held card, with an answer for its next worker (P26)."""
        with self._verb("unblock", task) as (ctx, card):
            return release.unblock(ctx, card, values.text_value("answer", answer))

    def promote(self, task: str) -> Task:
        """Send a held card to ready by hand; refused while a parent is open."""
        with self._verb("promote", task) as (ctx, card):
            return release.promote(ctx, card)

    def schedule(self, task: str, at: int | None = None, reason: str | None = None, *, override: bool = False) -> Task:
        """Park a card until a time, or until somebody releases it."""
        with self._verb("schedule", task) as (ctx, card):
            return release.schedule(ctx, card, at, values.text_value("reason", reason), override=override)

    def reopen(self, task: str) -> edit.Reopened:
        """Open a done card again."""
        with self._verb("reopen", task) as (ctx, card):
            return edit.reopen(ctx, card)

    def assign(self, task: str, who: str | None) -> Task:
        """Give a card to somebody, or to nobody."""
        with self._verb("assign", task) as (ctx, card):
            return edit.assign(ctx, card, who, self._ports.names)

    def edit(self, task: str, changes: dict[str, Any]) -> Task:
        """Change what a person wrote on a card."""
        with self._verb("edit", task) as (ctx, card):
            return edit.edit(ctx, card, changes, self._ports.names)

    def archive(self, task: str, children: str | None = None, *, override: bool = False) -> Task:
        """Hide a card; says what becomes of open children (P6)."""
        with self._verb("archive", task) as (ctx, card):
            return edit.archive(ctx, card, children, override=override)

    def unarchive(self, task: str) -> Task:
        """Bring an archived card back."""
        with self._verb("unarchive", task) as (ctx, card):
            return edit.unarchive(ctx, card)

    def reclaim(self, task: str) -> Task:
        """Take a card from its run (P12c)."""
        with self._verb("reclaim", task) as (ctx, card):
            return edit.reclaim(ctx, card)

    def link(self, parent: str, child: str) -> links.Linked:
        """Make the child wait for the parent (P5)."""
        with self._verb("link", child) as (ctx, card):
            return links.link(ctx, find.task(ctx.tx, parent), card)

    def unlink(self, parent: str, child: str) -> links.Linked:
        """Remove a link and let the child go if nothing else holds it (P5)."""
        with self._verb("unlink", child) as (ctx, card):
            return links.unlink(ctx, find.task(ctx.tx, parent), card)


class _Undo(Exception):
    """Leaves a transaction without keeping it (dry runs)."""


_RECHECK = 1.0
_NO_CARD: Any = None


def _handoff(given: Handoff) -> Handoff:
    return given.evolve(
        summary=values.text_value("summary", given.summary),
        result=values.text_value("result", given.result),
        metadata=values.metadata(given.metadata),
    )
