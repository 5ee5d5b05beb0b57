"""The command `hermes`: finds the verb, builds only its parser, loads only its module, translates every refusal.

Exit codes are those of the refusals (see `base/errors.py`): 0 done, 1 a fault of ours, 2 wrong usage, and so on.
`MODULES` is the one table by which a verb's module is loaded, and the only dynamic import of the command line.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module

from hermes_kanban import compose
from hermes_kanban.base.errors import Refusal, StoreIo, Unexpected, Usage
from hermes_kanban.cli import output, parse
from hermes_kanban.cli.call import Call
from hermes_kanban.cli.output import Output
from hermes_kanban.kernel import verbs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MODULES = {
    "look": ("list", "show", "context", "runs", "why", "inbox", "stats", "verify"),
    "log": ("board", "events", "tail", "watch"),
    "cards": ("create", "edit", "assign", "link", "unlink", "archive", "unarchive"),
    "graph": ("apply",),
    "work": ("claim", "heartbeat", "comment", "complete", "request-review", "request-changes", "block"),
    "files": ("attach", "attachments", "attach-rm"),
    "decide": ("unblock", "promote", "schedule", "reclaim", "reopen"),
    "processes": ("gateway start", "gateway status", "gateway stop", "dispatch", "daemon"),
    "bridge": ("bridge",),
    "admin": ("init", "boards list", "boards show", "boards create", "boards switch"),
    "lanes": ("lanes list", "lanes add", "lanes rm"),
}
MODULE_OF = {verb: module for module, names in MODULES.items() for verb in names}
STRICT = ("bridge", "lanes", "processes")  # these start workers or change config.yaml: never on a guess
GROUPS = ("kanban", "gateway")
LASTING = (
    "board",
    "bridge",
    "claim",
    "daemon",
    "gateway start",
    "tail",
    "watch",
)  # may run for hours: these collect their garbage
KANBAN = "usage: hermes kanban [--board SLUG] VERB …"
INTERRUPTED = 130
_VERSION = ("-V", "--version")
_FAMILIES = {
    "boards": "boards list",
    "gateway": "gateway status",
    "lanes": "lanes list",
}  # a first word that needs a second one, and what it means alone


def main(argv: list[str] | None = None) -> int:
    """Run a command line; return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    asked = words[: words.index("--")] if "--" in words else words
    out = Output(json="--json" in asked, quiet="-q" in asked or "--quiet" in asked)
    try:
        code = _run(words, out)
        out.flush()
        return code
    except BrokenPipeError:
        output.abandon()  # whoever reads has had enough (`list | head`)
        return 0
    except OSError as error:
        output.abandon()
        return _refused(out, StoreIo(f"the answer could not be printed: {error.strerror}", hint="look at stdout"))


def _run(words: list[str], out: Output) -> int:
    try:
        return _command(words, out)
    except parse.Helped as helped:
        out.line(str(helped))
        return 0
    except Refusal as error:
        return _refused(out, error)
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        words_of = " ".join(str(error).split())[:300]
        fault = Unexpected(
            f"unexpected {type(error).__name__}: {words_of}", hint="this is a fault of hermes; please report it"
        )
        return _refused(out, fault)


def _refused(out: Output, error: Refusal, usage: str = "") -> int:
    out.refuse(error, usage)
    return error.exit_code


def _command(words: list[str], out: Output) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        raise parse.Helped(_usage().hermes_help())
    if words[0] in _VERSION:
        return _version(out)
    if words[0] not in GROUPS:
        guess = _usage().unknown_group(words[0], GROUPS)
        error = Usage(f"hermes has no {words[0][:60]!r}", hint=f"{guess}`hermes` lists what there is")
        return _refused(out, error, "usage: hermes GROUP …")
    return _kanban(words if words[0] in _FAMILIES else words[1:], out)


def _version(out: Output) -> int:
    out.line(f"hermes {import_module('importlib.metadata').version('hermes-kanban')}")
    return 0


def _kanban(words: list[str], out: Output) -> int:
    """Find the verb among the words; `--board` and the like may stand before it."""
    before, rest = _leading(words)
    if not words or (rest and rest[0] in ("-h", "--help", "help")):
        raise parse.Helped(_usage().kanban_help())
    if set(before) & set(_VERSION):
        return _version(out)
    if not rest:
        return _refused(out, Usage("the verb is missing", hint="`hermes kanban --help` lists them"), KANBAN)
    name, rest = _verb_name(rest)
    verb = verbs.BY_NAME.get(verbs.ALIASES.get(name, name))
    if verb is None:
        error = Usage(
            f"kanban has no verb {name[:60]!r}", hint=f"{_usage().unknown(name)}`hermes kanban --help` lists them"
        )
        return _refused(out, error, KANBAN)
    try:
        parsed = parse.parse(verb, [*before, *rest])
    except Usage as error:
        return _refused(out, error, _usage().usage_line(verb))
    out.json, out.quiet = parsed.json, parsed.quiet
    module = MODULE_OF[verb.name]
    env = compose.environment(forgiving=False if module in STRICT else None)
    out.warn(env.values.warnings)
    if verb.name in LASTING:
        gc.freeze()  # what there is by now stays: the first collection would look at all of it
        gc.enable()
    handlers: dict[str, Any] = import_module(f"hermes_kanban.cli.{module}").HANDLERS
    return int(handlers[verb.name](Call(verb, parsed, env, out)))


def _leading(words: list[str]) -> tuple[list[str], list[str]]:
    """Split off the options that stand before the verb."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-h", "--help"):
        at += 2 if words[at] == "--board" else 1
    return words[:at], words[at:]


def _verb_name(words: list[str]) -> tuple[str, list[str]]:
    """Return the verb's name and the words behind it; some names have two words."""
    first, rest = words[0], words[1:]
    if first not in _FAMILIES:
        return first, rest
    if rest and not rest[0].startswith("-"):
        return f"{first} {rest[0]}", rest[1:]
    return _FAMILIES[first], rest


def _usage() -> Any:
    return import_module("hermes_kanban.cli.usage")
