"""What the help says besides the declarations: what a verb prints, templates, an example, words that people guess.

Loaded with the help alone.
"""

from __future__ import annotations

from textwrap import wrap

from hermes_kanban.cli.graph import KNOWN, LISTS
from hermes_kanban.model import blocks
from hermes_kanban.model import status as s

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_WIDTH = 98

# Words that people try, and the verb that does it here. Nothing in it is destructive: agents obey hints.
GUESSED: Mapping[str, str] = {
    "add": "create",
    "new": "create",
    "delete": "archive",
    "remove": "archive",
    "rm": "archive",
    "move": "claim",
    "start": "claim",
    "take": "claim",
    "next": "claim --next",
    s.DONE: "complete",
    "finish": "complete",
    "close": "complete",
    "approve": "complete",
    "reject": "request-changes",
    "answer": "unblock",
    "note": "comment",
    "get": "show",
    "view": "show",
    "update": "edit",
    "search": "list --search",
    "log": "events",
    "history": "events",
}
OPTIONS_ELSEWHERE: Mapping[tuple[str, str], str] = {
    ("edit", "--assignee"): "`assign ID NAME` gives a card to somebody",
    ("edit", "--parent"): "`link PARENT CHILD` lets a card wait for another",
    ("edit", "--status"): "verbs move a card: claim, complete, block, unblock …",
    ("create", "--description"): "--body says what is to be done",
    ("complete", "--comment"): "--summary tells the next reader, `comment ID TEXT` adds a fact",
}

EXAMPLE = """\
- name: collect
  title: Collect the figures
  idempotency_key: report-collect
- title: Write the report
  parents: [collect]
  idempotency_key: report-write"""

_CLAIM = (
    "what it prints:",
    "  claim ID                    the workspace's path alone; id, state and run go to stderr",
    "  claim --next                `ID PATH`",
    "  --export                    three lines for eval: HERMES_KANBAN_RUN_ID, …_CLAIM_LOCK, …_WORKSPACE",
    "  --json                      one document: the card, run_id, claim_lock, claim_expires, workspace",
    "  --quiet                     the id alone",
)
_BLOCK = (
    "the reason as a text, from an argument, `-` or @file:",
    *(f"  {line}" for line in blocks.TEMPLATE.splitlines()),
    "",
    "the same by options: --cause, --what, --option (once for each), --recommend, --next",
    "causes:",
    *(f"  {cause}" for cause in blocks.CAUSES),
)
_APPLY = (
    "keys of a task (title is required; the others mean what they mean for `create`):",
    *wrap(", ".join(KNOWN), _WIDTH, initial_indent="  ", subsequent_indent="  "),
    f"  lists: {', '.join(LISTS)}; a parent is the name of another task of the file, or a card's id",
    "",
    "for example:",
    *(f"  {line}" for line in EXAMPLE.splitlines()),
)
_MORE: Mapping[str, tuple[str, ...]] = {"claim": _CLAIM, "block": _BLOCK, "apply": _APPLY}


def more(verb: str) -> list[str]:
    """Return the lines that stand below the options of a verb, with an empty one in front."""
    return ["", *_MORE[verb]] if verb in _MORE else []
