"""The variables of a worker: few of ours, those that its lane asks for, and those of its run (D10).

Nothing else is inherited, above all no secret: a worker reads texts that strangers wrote. What the run sets goes last,
so that no allow-list can change whose card a worker believes it has.
"""

from __future__ import annotations

import os
import sys
import sysconfig

from hermes_kanban.base import process, settings
from hermes_kanban.base.record import Record, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from hermes_kanban.lanes.lane import Lane

ALWAYS = ("PATH", "HOME", "LANG", "TERM", "TMPDIR", "TZ", "USER", "LOGNAME", "XDG_RUNTIME_DIR")
ALWAYS_BEGIN = "LC_"
_USUAL_PATH = "/usr/local/bin:/usr/bin:/bin"
_OF_BOARD = ("HERMES_KANBAN_HOST", "HERMES_KANBAN_ATTACHMENTS_ROOT", "HERMES_ALLOW_NETWORK_FS")

# Variables in which people keep secrets for the programs that lanes run; by name, or by how the name ends.
SECRETS = (
    *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "OPENAI_API_KEY", "CODEX_API_KEY"),
    *("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "OPENROUTER_API_KEY", "DASHSCOPE_API_KEY"),
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK"),
    *("GITHUB_TOKEN", "GH_TOKEN", "GITLAB_TOKEN", "HF_TOKEN", "NPM_TOKEN", "SLACK_BOT_TOKEN", "SSH_AUTH_SOCK"),
)
SECRET_ENDS = ("_API_KEY", "_AUTH_TOKEN", "_ACCESS_TOKEN")


@record
class SpawnFacts(Record):
    """What is set for one run. Paths are absolute; `tenant` is "" for none."""

    home: str
    profile: str
    tenant: str
    role: str
    task_id: str
    board: str
    database: str
    workspace: str
    workspaces_root: str
    run_id: int
    claim_lock: str


# The variables of a run, and the fact that each holds.
OF_RUN = {
    "HERMES_HOME": "home",
    "HERMES_PROFILE": "profile",
    "HERMES_TENANT": "tenant",
    "HERMES_KANBAN_ROLE": "role",
    "HERMES_KANBAN_TASK": "task_id",
    "HERMES_KANBAN_BOARD": "board",
    "HERMES_KANBAN_DB": "database",
    "HERMES_KANBAN_WORKSPACE": "workspace",
    "HERMES_KANBAN_WORKSPACES_ROOT": "workspaces_root",
    "HERMES_KANBAN_RUN_ID": "run_id",
    "HERMES_KANBAN_CLAIM_LOCK": "claim_lock",
}
RESERVED = frozenset((*OF_RUN, *_OF_BOARD, "HERMES_DELEGATED_CHILD_CONTEXT", "HERMES_KANBAN_NAME"))


def inherited(lane: Lane) -> dict[str, str]:
    """Return what of this process's own variables a worker of the lane may get."""
    wanted = {*ALWAYS, *lane.env, *_OF_BOARD}
    return settings.inherited(lambda name: name in wanted or name.startswith(ALWAYS_BEGIN))


def worker_environment(lane: Lane, given: Mapping[str, str], facts: SpawnFacts) -> dict[str, str]:
    """Return the whole environment of a worker (D10).

    Args:
        lane: its allow-list counts.
        given: the variables of this process (see `inherited`); what is not to be passed on is left out here.
        facts: what is set for its run.
    """
    passed = {name: given[name] for name in (*ALWAYS, *lane.env) if name in given and name not in RESERVED}
    passed |= {name: value for name, value in given.items() if name.startswith(ALWAYS_BEGIN)}
    passed |= {name: given[name] for name in _OF_BOARD if given.get(name)}
    missing = {"HOME": os.path.expanduser("~"), "USER": process.login_name()}
    missing["LOGNAME"] = missing["USER"]
    ours = {name: str(getattr(facts, field)) for name, field in OF_RUN.items()}
    return missing | passed | {"PATH": search_path(given)} | ours


def search_path(given: Mapping[str, str]) -> str:
    """Return where a worker's programs are looked for: ours first, so that it calls the `hermes` that started it.

    Only whole paths stay: a relative one would make commands of whatever lies in a card's workspace.
    """
    folders = (own_bin(), *(given.get("PATH") or _USUAL_PATH).split(os.pathsep))
    return os.pathsep.join(dict.fromkeys(filter(os.path.isabs, folders)))


def own_bin() -> str:
    """Return the folder of our own command."""
    beside = os.path.dirname(os.path.abspath(sys.executable))
    places = (beside, sysconfig.get_path("scripts"), sysconfig.get_path("scripts", f"{os.name}_user"))
    return next((place for place in places if os.path.isfile(os.path.join(place, "hermes"))), beside)


def withheld(lane: Lane, names: Mapping[str, str]) -> tuple[str, ...]:
    """Return the usual variables with secrets that are there and not passed on to a lane (their names only)."""
    usual = (name for name in names if name in SECRETS or name.endswith(SECRET_ENDS))
    return tuple(sorted(name for name in usual if name not in lane.env))
