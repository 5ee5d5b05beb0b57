"""How a worker ended, judged from one durable exit record by one pure function (P45).

Whoever notices the end (its own gateway, a restarted one, a one-shot dispatch, a claimer) reads the same record and
comes to the same verdict. Where the shim itself was killed there is no record: `VANISHED` stands for it.
"""

from __future__ import annotations

from hermes_kanban.base.record import Record, record
from hermes_kanban.model import status as s

RATE_LIMITED_CODE = 75  # BSD's EX_TEMPFAIL: rate limited, overloaded, provider 5xx or time-out, quota
TERMINAL_CODE = 78  # BSD's EX_CONFIG: credential, model or TLS refused

TERMINAL_PROVIDER = "terminal_provider"

# Why a run was stopped from outside: the word in the record, and what the run ends as.
STOPS: dict[str, tuple[str, str]] = {
    "timed_out": (s.TIMED_OUT, "it ran longer than its max_runtime"),
    "stale": (s.RECLAIMED, "no sign of activity for too long"),
    "never_alive": (s.SPAWN_FAILED, "its worker did not come alive in time (kanban.spawn_grace_seconds)"),
    "override": (s.RECLAIMED, "somebody else took the card"),
    "superseded": (s.RECLAIMED, "another run took the card"),
    "gateway_stop": (s.RECLAIMED, "the gateway was stopped together with its workers"),
    "bridge_stop": (s.RECLAIMED, "the bridge was stopped"),
    "memory": (s.FAILED, "it used more memory than its limit"),
    "signal": (s.CRASHED, "its shim was told to end it by a signal"),
}

# Ends that somebody decided, for no fault of the attempt: nothing is spent by them (P44, P12c).
DECIDED = ("override", "superseded", "gateway_stop", "bridge_stop")


@record
class ExitRecord(Record):
    """What the shim left of a run: the only source of the verdict.

    Args:
        run, task, lock: whose it is.
        code: the exit code of the worker, None when a signal ended it (or it never started).
        signal: the signal that ended it.
        started_ms, ended_ms: milliseconds since the epoch.
        stop: a word of `STOPS` when the shim stopped it, else "".
        overstayed: what was left after the closing grace had to be stopped.
        spawn_error, hint: why it could not be started, and what to do.
        policy: who closes the card when it ended well: `require_call` (the worker itself), `complete`,
            `request_review` or `block_for_review`.
        tail: its last lines, redacted.
        retry_after: seconds after which the provider may be asked again.
        output_bytes: how much it printed.
        worker: pid and start token.
        peak_memory: bytes, the whole set.
    """

    run: int
    task: str
    lock: str
    code: int | None = None
    signal: int | None = None
    started_ms: int = 0
    ended_ms: int = 0
    stop: str = ""
    overstayed: bool = False
    spawn_error: str | None = None
    hint: str = ""
    policy: str = "require_call"
    tail: tuple[str, ...] = ()
    retry_after: int | None = None
    output_bytes: int = 0
    worker: tuple[int, str] | None = None
    peak_memory: int = 0


@record
class Verdict(Record):
    """What an exit means for a run that is still open.

    Args:
        outcome: how the run ends; None: it ended well, and `policy` says who closes the card.
        reason: a word for the event.
        error: the last words.
        exit_code: of the worker; minus the signal's number when one ended it.
        exit_kind: `exit`, `signal`, `stopped`, `spawn`, `vanished` or `terminal_provider`.
        retry_after: seconds, when the provider said so.
        terminal: the provider refused credential, model or TLS.
        policy: how the card is closed for a program that cannot do it.
    """

    outcome: str | None
    reason: str
    error: str | None = None
    exit_code: int | None = None
    exit_kind: str = "exit"
    retry_after: int | None = None
    terminal: bool = False
    policy: str = ""


def classify(found: ExitRecord) -> Verdict:
    """Return what the record means for a run that nobody closed (P45); its words are such as can be kept."""
    verdict = _judged(found)
    words = verdict.error
    return verdict if words is None else verdict.evolve(error=words.encode("utf-8", "replace").decode())


def _judged(found: ExitRecord) -> Verdict:
    words = "\n".join(found.tail) or None
    if found.spawn_error is not None:
        said = f"{found.spawn_error}; {found.hint}" if found.hint else found.spawn_error
        return Verdict(s.SPAWN_FAILED, "spawn", said, exit_kind="spawn")
    code = found.code if found.signal is None else -found.signal
    if found.stop in STOPS:
        outcome, why = STOPS[found.stop]
        return Verdict(outcome, found.stop, _after(why, words), code, "stopped")
    if found.signal is not None or found.code is None:
        why = f"signal {found.signal} ended it" if found.signal else "it was stopped"
        return Verdict(s.CRASHED, "signal", _after(why, words), code, "signal")
    return _by_code(found, found.code, words)


def vanished(worker_pid: int | None) -> Verdict:
    """Return the verdict on a run whose shim died with its worker: nobody wrote a record (D13)."""
    return Verdict(s.CRASHED, "vanished", f"pid {worker_pid or 0} not alive", exit_kind="vanished")


def _by_code(found: ExitRecord, code: int, words: str | None) -> Verdict:
    if code == 0:
        if found.policy == "require_call":
            return Verdict(s.PROTOCOL_VIOLATION, "exit", _after("it ended without closing its card", words), 0, "exit")
        return Verdict(None, "exit", words, 0, policy=found.policy)
    if code == RATE_LIMITED_CODE:
        return Verdict(s.RATE_LIMITED, "exit", words, code, retry_after=found.retry_after)
    if code == TERMINAL_CODE:
        return Verdict(s.CRASHED, "exit", words, code, TERMINAL_PROVIDER, terminal=True)
    return Verdict(s.FAILED, "exit", _after(f"exit code {code}", words), code)


def _after(why: str, words: str | None) -> str:
    return f"{why}\n{words}" if words else why
