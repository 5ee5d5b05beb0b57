"""Settings: config.yaml and every environment variable, read once into frozen records.

`KEYS` is the one table of the keys under `kanban:` in config.yaml, with unit, range and default. Hot commands
read a JSON copy of config.yaml, which is refreshed when the file changes.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress

from hermes_kanban.base import lazy
from hermes_kanban.base.errors import ConfigInvalid, InvalidValue
from hermes_kanban.base.record import Record, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


@record
class Key(Record):
    """One setting under `kanban:`. `kind` is int, bool, word (one of `words`), text, names or map."""

    kind: str
    default: Any
    meaning: str
    unit: str = ""
    lowest: int = 0
    highest: int = 0
    words: tuple[str, ...] = ()


def _seconds(default: int, meaning: str, lowest: int = 0, highest: int = 31_536_000) -> Key:
    return Key("int", default, meaning, "seconds", lowest, highest)


def _count(default: int, meaning: str, unit: str, lowest: int = 0, highest: int = 100_000) -> Key:
    return Key("int", default, meaning, unit, lowest, highest)


KEYS: dict[str, Key] = {
    "claim_ttl_seconds": _seconds(900, "how long a claim holds without a sign of life", 1, 86_400),
    "quarantine_seconds": _seconds(120, "extra wait for a run whose process cannot be judged"),
    "closing_grace_seconds": _seconds(60, "how long a worker may go on after it closed its card"),
    "lock_wait_seconds": _seconds(10, "the longest wait for the write lock", 0, 3600),
    "durability": Key(
        "word",
        "full",
        "full: an answer survives a power loss; normal: the death of any process",
        words=("full", "normal"),
    ),
    "failure_limit": _count(2, "failures in a row that trip the breaker", "failures", 1),
    "protocol_violation_limit": _count(3, "violations in a row that trip the breaker", "violations", 1),
    "reclaim_limit": _count(5, "lost leases in a row without progress that trip the breaker", "leases", 1),
    "starts_per_day": _count(50, "starts of one card in a day", "starts", 1),
    "rate_limit_cooldown_seconds": _seconds(300, "first pause after a rate limit; doubles up to 3600"),
    "failure_retry_seconds": _seconds(86_400, "after this a tripped card gets one fresh attempt; 0: never"),
    "retry_backoff_seconds": _seconds(10, "first pause before a retry; doubles, spread, up to 3600"),
    "workspace_retry_seconds": _seconds(30, "pause after a workspace could not be prepared"),
    "block_recurrence_limit": _count(
        2, "blocks of the same kind after an unblock that send a card to triage", "blocks", 1
    ),
    "block_template": Key(
        "word", "require", "whether agents must give all five parts of a block", words=("require", "warn", "off")
    ),
    "review_round_limit": _count(5, "rounds of review after which a person decides", "rounds", 1),
    "reviewer": Key("text", "", "who reviews when nobody is named"),
    "allow_self_review": Key("bool", False, "whether an agent may approve its own work"),
    "unknown_assignee": Key(
        "word", "warn", "what a person's unknown assignee does (an agent's is refused)", words=("warn", "refuse")
    ),
    "external_assignees": Key("names", (), "names that pull from outside"),
    "default_workdir": Key("text", "", "the folder or repository that worktree cards use when they name none"),
    "scratch_retention_seconds": _seconds(86_400, "how long a scratch workspace stays after its card is done"),
    "context_limit_bytes": _count(65_536, "the hard limit of a worker's context", "bytes", 4096, 4_194_304),
    "dispatch_stale_timeout_seconds": _seconds(
        14_400, "running longer than this without a heartbeat in the last hour is stale"
    ),
    "max_runtime_seconds": _seconds(86_400, "the longest run", 1),
    "dispatch_interval_seconds": _seconds(60, "the dispatcher looks at least this often, whatever woke it", 1, 3600),
    "dispatch_in_gateway": Key("bool", True, "whether the gateway dispatches"),
    "max_in_progress": _count(
        0, "workers of this host at once; 0: twice the cores, but one GiB of memory each", "workers", 0, 10_000
    ),
    "max_in_progress_per_board": _count(0, "workers of one board at once; 0: no bound", "workers", 0, 10_000),
    "max_in_progress_per_profile": _count(0, "workers of one profile at once; 0: no bound", "workers", 0, 10_000),
    "spawn_grace_seconds": _seconds(60, "how long a worker may take to come alive", 1, 3600),
    "kill_grace_seconds": _seconds(5, "between the request to end and the end by force", 0, 3600),
    "no_progress_seconds": _seconds(3600, "a worker that shows nothing new for so long is flagged; 0: never"),
    "stranded_threshold_seconds": _seconds(1800, "a ready card that nobody answers for is reported after this"),
    "host_ttl_seconds": _seconds(90, "a host that was silent for longer counts as away", 3, 86_400),
    "log_bytes": _count(10_485_760, "the size at which a worker's log is put aside", "bytes", 65_536, 2**40),
    "worker_memory_limit_bytes": _count(
        0, "memory of one worker and all that it starts; 0: half of the machine's", "bytes", 0, 2**50
    ),
    "attachment_limit_bytes": _count(26_214_400, "the size of an attachment", "bytes", 1, 2**40),
    "attach_private_addresses": Key("bool", False, "whether attachments may be fetched from inner addresses"),
    "lanes": Key("map", (), "lanes by name"),
}

ENVIRONMENT = (
    "HERMES_HOME",
    "HERMES_PROFILE",
    "HERMES_TENANT",
    "HERMES_ALLOW_NETWORK_FS",
    "HERMES_DELEGATED_CHILD_CONTEXT",
    "HERMES_KANBAN_BOARD",
    "HERMES_KANBAN_DB",
    "HERMES_KANBAN_WORKSPACES_ROOT",
    "HERMES_KANBAN_ATTACHMENTS_ROOT",
    "HERMES_KANBAN_NAME",
    "HERMES_KANBAN_ROLE",
    "HERMES_KANBAN_TASK",
    "HERMES_KANBAN_RUN_ID",
    "HERMES_KANBAN_CLAIM_LOCK",
    "HERMES_KANBAN_WORKSPACE",
    "HERMES_KANBAN_HOST",
    "HERMES_KANBAN_DISPATCH_IN_GATEWAY",
    "NO_COLOR",
    "TERM",
    "XDG_RUNTIME_DIR",
    "TMPDIR",
    "HOME",
)

_COPY = ".config.json"  # in the home, beside config.yaml


def read_environment(source: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables that this program knows and that are set (an empty one counts as set)."""
    given = os.environ if source is None else source
    found = {name: given[name] for name in ENVIRONMENT if name in given}
    for name, value in found.items():
        if not value.isprintable() or any("\ud800" <= char <= "\udfff" for char in value):
            raise ConfigInvalid(
                f"the variable {name} holds control characters or bytes that are not UTF-8 text",
                hint=f"set {name} to plain text",
                argument=name,
            )
    return found


def inherited(wanted: Callable[[str], bool], source: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables of this process whose names are wanted, whoever knows them (D10)."""
    given = os.environ if source is None else source
    return {name: value for name, value in given.items() if wanted(name)}


def home_folder(environment: Mapping[str, str]) -> str:
    """Return the absolute path of HERMES_HOME (default `~/.hermes`)."""
    try:
        return os.path.abspath(environment.get("HERMES_HOME") or os.path.expanduser("~/.hermes"))
    except OSError as error:  # a relative path, and the folder that it is relative to is gone
        raise ConfigInvalid("the current folder is gone", hint="change to a folder that exists") from error


def runtime_folder(environment: Mapping[str, str]) -> str:
    """Return the folder of sockets: under XDG_RUNTIME_DIR, else a folder of ours in the temporary directory."""
    base = environment.get("XDG_RUNTIME_DIR")
    if base and os.path.isdir(base):
        return os.path.join(base, "hermes-kanban")
    return os.path.join(environment.get("TMPDIR") or "/tmp", f"hermes-kanban-{os.getuid()}")  # noqa: S108 - 0700


class Settings:
    """The values of `kanban:` in config.yaml, each checked against `KEYS`."""

    def __init__(self, values: Mapping[str, Any] | None = None, file: str = "config.yaml") -> None:
        given = dict(values or {})
        self.warnings = tuple(_unknown(name, file) for name in given if name not in KEYS)
        self._values = {name: _checked(name, given.get(name), key, file) for name, key in KEYS.items()}

    def number(self, name: str) -> int:
        """Return a whole number."""
        return int(self._values[name])

    def text(self, name: str) -> str:
        """Return a text or a word."""
        return str(self._values[name])

    def flag(self, name: str) -> bool:
        """Return a yes or no."""
        return bool(self._values[name])

    def names(self, name: str) -> tuple[str, ...]:
        """Return a list of names (the keys of a map)."""
        return tuple(self._values[name])

    def mapping(self, name: str) -> dict[str, Any]:
        """Return a map as it was written, as the caller's own copy."""
        copied: dict[str, Any] = json.loads(json.dumps(self._values[name] or {}))
        return copied


def load(home: str) -> Settings:
    """Read `config.yaml` of a home (a missing one is empty).

    Raises:
        ConfigInvalid: it is not YAML, or a value is out of its range.
    """
    path = os.path.join(home, "config.yaml")
    try:
        found = os.stat(path)
    except OSError:
        return Settings()
    stamp = [found.st_mtime_ns, found.st_size, found.st_ino]
    copy = os.path.join(home, _COPY)
    document = _cached(copy, stamp)
    if document is not None:
        return _made(document, path)
    document = _parsed(path)
    made = _made(document, path)
    _keep(copy, stamp, document)  # only what was checked: it may have to serve as the last good one
    return made


def load_forgiving(home: str) -> Settings:
    """Read `config.yaml` for who is in the midst of work: a mistake in it must not cost what was done.

    Where it cannot be used, the values are those of the last command that could use it, else the defaults; the
    first warning names the fault.
    """
    try:
        return load(home)
    except ConfigInvalid as error:
        made, whose = _last_good(home)
        made.warnings = (f"{error.message}; {whose} are used meanwhile", *made.warnings)
        return made


def _last_good(home: str) -> tuple[Settings, str]:
    """Return the settings to go on with, and whose they are."""
    copy = os.path.join(home, _COPY)
    document = _cached(copy)
    try:
        if document is not None:
            return _made(document, copy), "the last good values"
    except ConfigInvalid:  # kept by another version
        pass
    return Settings(), "the default values"


def _made(document: dict[str, Any], path: str) -> Settings:
    section = document.get("kanban")
    section = {} if section is None else section
    if not isinstance(section, dict):
        raise ConfigInvalid(f"kanban: in {path} must be a map", hint="write `kanban:` with indented keys below it")
    return Settings(section, path)


def stamp(home: str) -> tuple[int, int, int]:
    """Return what changes when config.yaml does (zeros where there is none)."""
    try:
        found = os.stat(os.path.join(home, "config.yaml"))
    except OSError:
        return (0, 0, 0)
    return (found.st_mtime_ns, found.st_size, found.st_ino)


def _cached(copy: str, stamp: list[int] | None = None) -> dict[str, Any] | None:
    """Return what the copy holds, if it is of the file with this stamp (None: of whichever)."""
    try:
        with open(copy, encoding="utf-8") as handle:
            kept = json.load(handle)
    except (OSError, ValueError, RecursionError):
        return None
    usable = isinstance(kept, dict) and stamp in (None, kept.get("stamp")) and isinstance(kept.get("document"), dict)
    return kept["document"] if usable else None


def _parsed(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as handle:
            document = lazy.module("hermes_kanban.base.yamlfile").parse(handle.read(), path)
    except (OSError, UnicodeDecodeError, InvalidValue) as error:
        words = str(error) if isinstance(error, InvalidValue) else f"{path} cannot be read: {error}"
        raise ConfigInvalid(words, hint="mend the file; nothing was done") from error
    if document is not None and not isinstance(document, dict):
        raise ConfigInvalid(f"{path} must hold a map", hint="begin with `kanban:` and indented keys below it")
    return {"kanban": (document or {}).get("kanban")}


def _keep(copy: str, stamp: list[int], document: dict[str, Any]) -> None:
    """Leave the JSON copy; where that is not possible the next command parses the YAML again."""
    half = f"{copy}.{os.getpid()}"
    try:
        descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
            json.dump({"stamp": stamp, "document": document}, handle)
        os.replace(half, copy)
    except OSError:
        with suppress(OSError):
            os.unlink(half)


def _unknown(name: object, file: str) -> str:
    near = lazy.module("difflib").get_close_matches(str(name), KEYS, 1)
    guess = f"; did you mean {near[0]}?" if near else ""
    return f"{file}: kanban.{name} is not a setting{guess}"


def _checked(name: str, value: Any, key: Key, file: str) -> Any:
    if value is None:
        return key.default
    if not _CHECKS[key.kind](value, key):
        wanted = {
            "int": f"a whole number from {key.lowest} to {key.highest} {key.unit}",
            "word": f"one of {', '.join(key.words)}",
            "names": "a list of names",
            "map": "a map",
            "bool": "true or false",
        }.get(key.kind, "a text")
        raise ConfigInvalid(
            f"{file}: kanban.{name} must be {wanted}, not {str(value)[:60]!r}", hint="mend the file; nothing was done"
        )
    return tuple(value) if key.kind == "names" else value


_CHECKS: dict[str, Callable[[Any, Key], bool]] = {
    "int": lambda v, k: isinstance(v, int) and not isinstance(v, bool) and k.lowest <= v <= k.highest,
    "bool": lambda v, _: isinstance(v, bool),
    "word": lambda v, k: v in k.words,
    "text": lambda v, _: isinstance(v, str),
    "names": lambda v, _: isinstance(v, list) and all(isinstance(n, str) and n for n in v),
    "map": lambda v, _: isinstance(v, dict) and all(isinstance(n, str) and n for n in v),
}
