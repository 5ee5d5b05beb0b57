"""The verbs, each declared once: name, parameters, whether it writes, the method that does it.

Pure data. The command line, the tools' schemas, the routes and the reference are made from these declarations or
checked against them, so that no surface has a field of its own. Types are words, explained in `TYPES`; a surface
says how it reads each. `into` says where a value goes: an argument of the method (`ttl`), or a field of the record
that the method takes (`draft.body`); a parameter `of_surface` only steers how the answer is given.
"""

from __future__ import annotations

from hermes_kanban.base.record import Record, record
from hermes_kanban.model import event
from hermes_kanban.model import status as s

TYPES = {
    "text": "a text of any length",
    "line": "a text of one line",
    "words": "a command line: every word as it is",
    "name": "a name",
    "int": "a whole number",
    "seconds": "a duration: whole seconds",
    "pause": "a duration: seconds, also parts of one",
    "when": "an instant: epoch seconds",
    "id": "a card's id, or a beginning of it that no other card has",
    "json": "a JSON object",
    "path": "a file, or `-` for standard input",
    "choice": "one of the words listed",
    "flag": "yes when it is there",
}


@record
class Parameter(Record):
    """One parameter of a verb.

    Args:
        name: the word by which every surface knows it.
        type: a key of `TYPES`.
        help: one sentence without a full stop.
        into: where the value goes; "" means an argument of the same name.
        positional, required, many: how it may be given.
        choices: the words that a `choice` may be.
        limit: the row of the table of limits that a number obeys.
        bare: the value of an option that is given without one.
        of_surface: it steers the surface and is no argument of the method.
    """

    name: str
    type: str
    help: str
    into: str = ""
    positional: bool = False
    required: bool = False
    many: bool = False
    choices: tuple[str, ...] = ()
    limit: str = ""
    bare: str = ""
    of_surface: bool = False

    @property
    def target(self) -> str:
        """Where the value goes."""
        return self.into or self.name


@record
class Verb(Record):
    """One verb.

    Args:
        name: the word on every surface.
        group: a key of `GROUPS`.
        summary: one line.
        method: the method of `Board`; "" for a verb about boards as such.
        writes: whether it changes anything.
        parameters: in the order of the help.
    """

    name: str
    group: str
    summary: str
    method: str
    writes: bool
    parameters: tuple[Parameter, ...] = ()

    @property
    def command(self) -> str:
        """How it is called on the command line."""
        return f"hermes {self.name}" if self.name.startswith("gateway ") else f"hermes kanban {self.name}"

    @property
    def repeats(self) -> bool:
        """Whether one call may name several cards, each of which is its own call of the method."""
        return any(p.many and p.target == "task" for p in self.parameters)


GROUPS = {
    "look": "see what there is",
    "cards": "make and change cards",
    "work": "work on a card",
    "decide": "decide and release",
    "boards": "boards",
    "lanes": "who does the work",
    "processes": "start workers",
}

TASK = Parameter("id", "id", "the card", "task", positional=True, required=True)
TASKS = TASK.evolve(help="the cards", many=True)
RUN = Parameter("run", "int", "which of your claims is meant", limit="run")
OVERRIDE = Parameter("override", "flag", "act although somebody else runs it (a person's)")
ASSIGNEE = Parameter("assignee", "name", "only cards of this name (none: of nobody)")
TENANT = Parameter("tenant", "name", "only cards of this tenant")
LIMIT = Parameter("limit", "int", "how many at most", limit="limit")
KINDS = Parameter("kinds", "choice", "only these kinds of events", many=True, choices=tuple(event.KINDS))
SINCE = Parameter("since", "int", "only events after this one", limit="since")
LIVE = Parameter("watch", "flag", "again after each change", of_surface=True)
ONE_CARD = Parameter("task", "id", "only events of this card")
HANDOFF = (
    Parameter("summary", "text", "what the next reader must know", "handoff.summary"),
    Parameter("metadata", "json", "the same for programs", "handoff.metadata"),
    Parameter("result", "text", "the result itself", "handoff.result"),
)
WRITTEN = (
    Parameter("body", "text", "what is to be done", "draft.body"),
    Parameter("acceptance", "text", "when it counts as done", "draft.acceptance"),
    Parameter("priority", "int", "higher goes first", "draft.priority", limit="priority"),
    Parameter("tenant", "name", "whose it is", "draft.tenant"),
    Parameter("reviewer", "name", "who judges the work", "draft.reviewer"),
    Parameter("branch", "name", "the branch of a worktree", "draft.branch_name"),
    Parameter("skill", "name", "a skill that the worker needs", "draft.skills", many=True),
    Parameter("max-retries", "int", "failures until a person must look", "draft.max_retries", limit="max_retries"),
    Parameter(
        "max-runtime",
        "seconds",
        "the longest that one attempt may take",
        "draft.max_runtime_seconds",
        limit="max_runtime",
    ),
)

_CREATE = (
    Parameter("title", "line", "one line of up to 500 characters", "draft.title", positional=True, required=True),
    *WRITTEN,
    Parameter("assignee", "name", "who is to do it", "draft.assignee"),
    Parameter("parent", "id", "a card that must be done first", "draft.parents", many=True),
    Parameter("workspace", "line", "scratch, dir:/absolute/path or worktree[:/repository]", "draft.workspace_kind"),
    Parameter("triage", "flag", "an idea that is still to be specified", "draft.status"),
    Parameter("status", "choice", "begin as held", "draft.status", choices=(s.TRIAGE, s.BLOCKED)),
    Parameter("reason", "text", "why a card begins as blocked", "draft.reason"),
    Parameter("at", "when", "not before this time", "draft.scheduled_at", limit="at"),
    Parameter("in", "when", "the same, given as a span from now", "draft.scheduled_at", limit="at"),
    Parameter("idempotency-key", "name", "a repeated call finds the first card again", "draft.idempotency_key"),
    Parameter("model", "name", "the model to use", "draft.model_override"),
    Parameter("provider", "name", "the model's provider", "draft.provider_override"),
    Parameter("goal", "flag", "a judge says when it is done", "draft.goal"),
    Parameter("goal-max-turns", "int", "the judge's patience", "draft.goal_max_turns", limit="goal_max_turns"),
    Parameter("session", "name", "the session that it belongs to", "draft.session_id"),
    Parameter("by", "name", "who wants it (a person's)", "draft.created_by"),
)
_EDIT = (
    TASK,
    Parameter("title", "line", "one line of up to 500 characters", "changes.title"),
    *(p.evolve(into=p.into.replace("draft.", "changes.")) for p in WRITTEN),
)
_LIST = (
    ASSIGNEE.evolve(into="wanted.assignee"),
    Parameter("mine", "flag", "only cards of the caller's name", "wanted.assignee"),
    Parameter("status", "choice", "only these states", "wanted.statuses", many=True, choices=s.STATES),
    TENANT.evolve(into="wanted.tenant"),
    Parameter("parent", "id", "only children of this card", "wanted.parent"),
    Parameter("search", "line", "only with these words in title or body", "wanted.search"),
    Parameter("archived", "flag", "archived cards too", "wanted.archived"),
    Parameter("workflow-template-id", "name", "only of this workflow", "wanted.workflow_template_id"),
    Parameter("current-step-key", "name", "only at this step", "wanted.current_step_key"),
    Parameter("sort", "choice", "the order", "wanted.sort", choices=("priority", "seq", "newest", "updated")),
    LIMIT.evolve(into="wanted.limit"),
    Parameter("offset", "int", "leave out so many, for the next page", "wanted.after", limit="after"),
)
_CLAIM = (
    TASK.evolve(required=False),
    Parameter("ttl", "seconds", "the claim is over after so long without a sign of life", limit="ttl"),
    Parameter("next", "flag", "the first card that fits", of_surface=True),
    Parameter("review", "flag", "the first review instead"),
    Parameter("wait", "pause", "wait so long for a card, a day when no time is given", limit="wait", bare="86400"),
    ASSIGNEE,
    Parameter("export", "flag", "print the claim as lines for a shell's eval", of_surface=True),
)
_BLOCK = (
    TASK,
    Parameter("reason", "text", "the reason, as the template with its five parts", "reason.text", positional=True),
    Parameter("kind", "choice", "what kind of wait", choices=s.BLOCK_KINDS),
    Parameter("cause", "line", "why, in one of the protocol's words", "reason.cause"),
    Parameter("what", "text", "what happened", "reason.what"),
    Parameter("option", "text", "one way to go on", "reason.options", many=True),
    Parameter("recommend", "text", "which one, and why", "reason.recommendation"),
    Parameter("next", "text", "what whoever releases it must do", "reason.next_action"),
    Parameter("ids", "id", "block this one too, for the same reason", "task", many=True),
    RUN,
    OVERRIDE,
)
_ATTACH = (
    TASK,
    Parameter("file", "path", "a file", "files", positional=True, many=True),
    Parameter("url", "line", "download it from here (http or https)"),
    Parameter("name", "line", "another name for the one file"),
    RUN,
)
_ATTACH_RM = (
    TASK,
    Parameter("n", "int", "its number (see `attachments`)", "attachment", True, True, limit="attachment"),
)
_SCHEDULE = (
    TASKS,
    Parameter("at", "when", "the time at which it goes on", limit="at"),
    Parameter("in", "when", "the same, given as a span from now", "at", limit="at"),
    Parameter("reason", "text", "why"),
    OVERRIDE,
)
_TAIL = (TASK, LIMIT.evolve(into="events"), Parameter("follow", "flag", "go on with new ones", of_surface=True))
_ASSIGN = (TASK, Parameter("who", "name", "a name, or none", positional=True, required=True))
_PAIR = (TASK.evolve(name="parent", into="parent"), TASK.evolve(name="child", into="child"))
_HEARTBEAT = (TASK, Parameter("note", "text", "how far the work is"), RUN)
_UNBLOCK = (TASKS, Parameter("answer", "text", "the answer, or an option's letter"))
_WATCH = (
    ASSIGNEE,
    TENANT,
    KINDS,
    ONE_CARD,
    SINCE,
    Parameter("interval", "seconds", "ask at least this often", limit="interval", of_surface=True),
)
_BOARD = Parameter("slug", "name", "the board's name", positional=True, required=True)
_NEW_BOARD = (
    _BOARD,
    Parameter("name", "line", "the name that people see"),
    Parameter("description", "line", "what it is for"),
    Parameter("icon", "line", "a sign for it"),
    Parameter("workdir", "line", "the folder or repository that its worktrees use"),
    Parameter("switch", "flag", "make it the current board"),
)

_POLICIES = ("require_call", "complete", "request_review", "block_for_review")
_LANE = Parameter("name", "name", "the name that cards are given to", positional=True, required=True)
_NEW_LANE = (
    _LANE,
    Parameter("argv", "words", "the program and its arguments, behind `--`", positional=True, many=True),
    Parameter("type", "name", "the kind of lane (command)"),
    Parameter("max-concurrency", "int", "how many at once (0: no bound)", limit="max_concurrency"),
    Parameter("env", "name", "a variable that is passed on", many=True),
    Parameter("success-policy", "choice", "who closes the card after exit code 0", choices=_POLICIES),
    Parameter("timeout", "seconds", "the longest that one attempt may take", limit="max_runtime"),
    Parameter("model", "name", "what {model} stands for, unless the card names one"),
)
_GATEWAY = (
    Parameter("no-dispatch", "flag", "without the dispatcher"),
    Parameter("stop-workers", "flag", "end the workers too when the gateway is stopped"),
)
_BRIDGE = (
    Parameter("argv", "words", "the program and its arguments, behind `--`", positional=True, many=True),
    Parameter("assignee", "name", "whose cards; the bridge goes by this name too"),
    Parameter("lane", "name", "a lane of this home, instead of a program"),
    Parameter("env", "name", "a variable that is passed on to the program", many=True),
    Parameter("ttl", "seconds", "a claim is over after so long without a sign of life", limit="ttl"),
    Parameter("concurrency", "int", "how many cards at once (1)", limit="concurrency"),
    Parameter("review", "flag", "take reviews instead of work"),
    Parameter("on-success", "choice", "who closes the card after exit code 0", choices=_POLICIES),
    Parameter("alert-cmd", "line", "run this when the board cannot be told; facts come as JSON on its input"),
    Parameter("once", "flag", "leave when nothing is ready and nothing runs"),
    Parameter("stop-workers", "flag", "end the workers too when the bridge is stopped"),
)
_WORKERS = Parameter("workers", "flag", "end the workers too")
_DISPATCH = (
    Parameter("dry-run", "flag", "only show what a pass would start; nothing is changed"),
    Parameter("max", "int", "start at most so many", limit="limit"),
)

VERBS: tuple[Verb, ...] = (
    Verb("list", "look", "cards, the most urgent first", "list", False, _LIST),
    Verb("board", "look", "the board by states", "columns", False, (LIMIT.evolve(into="per_column"), LIVE)),
    Verb("inbox", "look", "what waits for a person, oldest first", "inbox", False, (LIMIT,)),
    Verb("show", "look", "all about a card", "show", False, (TASK, LIMIT.evolve(name="events"))),
    Verb("context", "look", "what a worker of the card reads first", "context", False, (TASK,)),
    Verb("runs", "look", "the attempts at a card", "runs", False, (TASK,)),
    Verb("attachments", "look", "the files of a card", "attachments", False, (TASK,)),
    Verb("why", "look", "why a card does not start", "why", False, (TASK,)),
    Verb("events", "look", "the log, oldest first", "events", False, (SINCE, LIMIT, ONE_CARD, KINDS)),
    Verb("tail", "look", "the newest events of a card", "show", False, _TAIL),
    Verb("watch", "look", "events from now on, a JSON object per line", "follow", False, _WATCH),
    Verb("stats", "look", "counts", "stats", False),
    Verb("verify", "look", "whether log, rows and rules agree", "verify", False),
    Verb("create", "cards", "make a card", "create", True, _CREATE),
    Verb(
        "apply",
        "cards",
        "make a graph of cards from YAML or JSON",
        "apply",
        True,
        (
            Parameter("file", "path", "the graph: {tasks: [{name, title, parents …}]} or a list", "drafts", True, True),
            Parameter("dry-run", "flag", "show what it would make, and keep nothing", "dry_run"),
        ),
    ),
    Verb("edit", "cards", "change what is written on a card", "edit", True, _EDIT),
    Verb("assign", "cards", "give a card to somebody, or to none", "assign", True, _ASSIGN),
    Verb("link", "cards", "let the child wait for the parent", "link", True, _PAIR),
    Verb("unlink", "cards", "let the child wait no longer", "unlink", True, _PAIR),
    Verb(
        "archive",
        "cards",
        "hide cards",
        "archive",
        True,
        (
            TASKS,
            Parameter("release-children", "flag", "its open children wait for it no longer", "children"),
            Parameter("archive-children", "flag", "its open children are hidden too", "children"),
            OVERRIDE,
        ),
    ),
    Verb("unarchive", "cards", "bring archived cards back", "unarchive", True, (TASKS,)),
    Verb("claim", "work", "take a card to work on", "claim", True, _CLAIM),
    Verb("heartbeat", "work", "renew the claim", "heartbeat", True, _HEARTBEAT),
    Verb(
        "comment",
        "work",
        "add a fact for the next reader",
        "comment",
        True,
        (
            TASK,
            Parameter("text", "text", "the fact", "body", positional=True, required=True),
            Parameter("author", "name", "in whose name"),
            RUN,
        ),
    ),
    Verb("attach", "work", "add files to a card, all or none", "attach", True, _ATTACH),
    Verb("attach-rm", "work", "remove a file from a card (a person's)", "detach", True, _ATTACH_RM),
    Verb(
        "complete",
        "work",
        "the work is done",
        "complete",
        True,
        (
            TASKS,
            *HANDOFF,
            Parameter("created", "id", "a card that you made on the way", "handoff.created", many=True),
            Parameter("artifact", "path", "a file of the workspace that is to be kept", "handoff.artifacts", many=True),
            RUN,
            OVERRIDE,
        ),
    ),
    Verb(
        "request-review",
        "work",
        "hand the work over for a verdict",
        "request_review",
        True,
        (TASK, *HANDOFF, Parameter("reviewer", "name", "who is to judge"), RUN, OVERRIDE),
    ),
    Verb(
        "request-changes",
        "work",
        "send reviewed work back",
        "request_changes",
        True,
        (TASK, Parameter("text", "text", "what is to be changed", positional=True, required=True), RUN, OVERRIDE),
    ),
    Verb("block", "work", "stop, and say what is needed", "block", True, _BLOCK),
    Verb("unblock", "decide", "release held cards", "unblock", True, _UNBLOCK),
    Verb("promote", "decide", "send held cards to work by hand", "promote", True, (TASKS,)),
    Verb("schedule", "decide", "park cards until a time", "schedule", True, _SCHEDULE),
    Verb("reclaim", "decide", "take a card from its run", "reclaim", True, (TASK,)),
    Verb("reopen", "decide", "open a done card again", "reopen", True, (TASK,)),
    Verb("init", "boards", "make the default board; harmless to repeat", "", True),
    Verb("boards list", "boards", "the boards of this home", "", False),
    Verb("boards show", "boards", "one board", "", False, (_BOARD.evolve(required=False),)),
    Verb("boards create", "boards", "make a board", "", True, _NEW_BOARD),
    Verb("boards switch", "boards", "choose the current board", "", True, (_BOARD,)),
    Verb("lanes list", "lanes", "the lanes of this home, and whether each works", "", False),
    Verb("lanes add", "lanes", "make a lane in config.yaml", "", True, _NEW_LANE),
    Verb("lanes rm", "lanes", "take a lane out of config.yaml", "", True, (_LANE,)),
    Verb("gateway start", "processes", "dispatch every board, in the foreground", "", True, _GATEWAY),
    Verb("gateway status", "processes", "who dispatches which board, and what runs", "", False),
    Verb("gateway stop", "processes", "stop the gateways of this home; workers run on", "", True, (_WORKERS,)),
    Verb("dispatch", "processes", "do one pass: start what is ready", "", True, _DISPATCH),
    Verb("bridge", "processes", "claim the cards of a name, and run a program for each", "", True, _BRIDGE),
    Verb("daemon", "processes", "an old word for `gateway start`, for one board", "", True),
)

BY_NAME: dict[str, Verb] = {verb.name: verb for verb in VERBS}
ALIASES = {"ls": "list"}
