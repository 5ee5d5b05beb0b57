"""The `command` lane: any program, given as a list of arguments. A card's text is an argument, and never anything else.

A placeholder stands for one whole argument, or for what follows `--name=`. It is refused where a program would run the
text it stands for: as the program itself, behind `-c` of a shell, as the script of an interpreter. Substitution is one
pass: what came in is not looked at again. Other braces stay as they are.
"""

from __future__ import annotations

import os
import re

from hermes_kanban.base.errors import ConfigInvalid
from hermes_kanban.base.record import Record, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_kanban.lanes.lane import Lane

_PLACEHOLDER = re.compile(r"\{(task_id|workspace|prompt|model)\}")
_ITEM = re.compile(r"(?P<before>--[A-Za-z0-9][A-Za-z0-9_.-]*=)?\{(?P<name>task_id|workspace|prompt|model)\}")
_LONGEST_ARGUMENT = 131_071  # bytes that Linux takes in one argument
_CUT = "\n[cut here: `hermes kanban context {task}` shows the rest]"
_OURS = "{task_id}"  # what it stands for was made by us; the others hold what people wrote


@record
class Facts(Record):
    """What the placeholders stand for."""

    task_id: str
    workspace: str
    prompt: str
    model: str


SCRIPT, PROGRAM, DATA = "script", "program", "data"  # what the first argument of a program is that is no option


@record
class Runner(Record):
    """A kind of program that runs what its arguments say.

    Args:
        letters: short options whose value is run, also in a bundle (`-lc`).
        words: other options, or words in an option's place, whose value is run.
        values: options that take a value which is not run: what follows such a one is no script.
        operand: what its first argument is besides options.
    """

    letters: str = ""
    words: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    operand: str = SCRIPT


_SHELL = Runner("c", ("--command",), ("-o", "+o", "-O", "+O", "--rcfile", "--init-file"))
_JAVASCRIPT = Runner(
    "ep",
    ("--eval", "--print", "eval", "run", "x", "exec"),
    ("-r", "--require", "--import", "--loader", "-C", "--conditions"),
)
_POWERSHELL = Runner(
    "",
    ("-c", "-command", "-e", "-ec", "-enc", "-encodedcommand", "-f", "-file", "-cwa", "-commandwithargs"),
    ("-executionpolicy", "-ep", "-ex", "-version", "-workingdirectory", "-wd"),
)
_WRAPPER = Runner("", (), ("-u", "-n", "-k", "-s", "-g", "-C", "--user", "--chdir", "--unset"), PROGRAM)

RUNNERS: dict[str, Runner] = {
    **dict.fromkeys(("sh", "bash", "zsh", "dash", "ash", "ksh", "mksh", "fish", "csh", "tcsh"), _SHELL),
    **dict.fromkeys(("python", "pypy", "ipython"), Runner("cm", (), ("-W", "-X"))),
    **dict.fromkeys(("node", "nodejs", "bun", "deno", "tsx"), _JAVASCRIPT),
    **dict.fromkeys(("pwsh", "powershell"), _POWERSHELL),
    "perl": Runner("eE", (), ("-I",)),
    "ruby": Runner("e", (), ("-I", "-r")),
    "php": Runner("rBREf", ("--run", "--process-begin", "--process-code", "--process-end"), ("-d", "-c", "-z")),
    "lua": Runner("e", (), ("-l",)),
    "julia": Runner("eE", ("--eval", "--print")),
    **dict.fromkeys(("R", "Rscript", "osascript", "elixir", "groovy", "scala"), Runner("e", ("--eval",))),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), Runner("ef", ("--source", "--file"), ("-v", "-F"))),
    "sed": Runner("ef", ("--expression", "--file")),
    **dict.fromkeys(("su", "script"), Runner("c", ("--command", "--session-command"), operand=DATA)),
    **dict.fromkeys(("vim", "vi", "nvim", "emacs"), Runner("cS", ("--cmd", "--eval", "--execute"), operand=DATA)),
    **dict.fromkeys(("psql", "mysql"), Runner("ce", ("--command", "--execute"), operand=DATA)),
    "env": Runner("S", ("--split-string",), _WRAPPER.values, PROGRAM),
    **dict.fromkeys(("sudo", "doas", "nice", "ionice", "nohup", "setsid", "timeout", "stdbuf", "time"), _WRAPPER),
    **dict.fromkeys(("xargs", "npx", "uvx", "bunx", "systemd-run", "caffeinate", "busybox"), _WRAPPER),
}
HAND_ON = frozenset(("ssh", "watch", "tmux", "screen", "parallel", "eval", "entr"))  # a shell runs what they are given
_VERSIONED = re.compile(r"(python|pypy|ruby|perl|php|lua|node)[0-9.]+")
_PERHAPS_A_VALUE = re.compile(r"\w[\w:-]*")  # behind an option that is not known: not surely the script
_BEFORE_A_PROGRAM = re.compile(r"[0-9][\w.]*|\w+=.*", re.S)  # a time, a variable


def argv(lane: Lane, facts: Facts) -> list[str]:
    """Return the command line of a run; the lane was checked when it was read.

    An argument that is longer than the system takes is cut, and says where the rest is.
    """
    return [_substituted(word, facts) for word in (*lane.argv, *lane.args)]


def _substituted(word: str, facts: Facts) -> str:
    found = _ITEM.fullmatch(word)
    if found is None:
        return word
    text = str(getattr(facts, found["name"])).replace("\0", "\ufffd")
    return _fitting((found["before"] or "") + text, facts.task_id)


def _fitting(text: str, task_id: str) -> str:
    data = os.fsencode(text)
    if len(data) <= _LONGEST_ARGUMENT:
        return text
    end = _CUT.replace("{task}", task_id)
    return data[: _LONGEST_ARGUMENT - len(end)].decode("utf-8", "ignore") + end


def check(lane: Lane, where: str) -> None:
    """Check the command line of a lane.

    Args:
        where: how errors call the place.

    Raises:
        ConfigInvalid: there is none, or a placeholder stands where a card's text would be run.
    """
    words = (*lane.argv, *lane.args)
    if not lane.argv or not lane.argv[0]:
        raise ConfigInvalid(
            f"{where} has no argv: what is to be run?", hint=f'write {where}.argv: [program, --task, "{{task_id}}"]'
        )
    for word in words:
        if _PLACEHOLDER.search(word) and not _ITEM.fullmatch(word):
            raise ConfigInvalid(
                f"{where}: a placeholder is a whole argument, which {word[:80]!r} is not",
                hint='write it alone, as "{prompt}", or as --name={prompt}; a program that wants both in one text '
                "gets a script around it that takes the arguments and puts them together",
            )
    if "{model}" in "\n".join(words) and not lane.model:
        raise ConfigInvalid(f"{where} uses {{model}} and has no model", hint=f"write {where}.model: NAME")
    run = _run_as_code(words)
    if run is not None:
        raise ConfigInvalid(
            f"{where}: {words[run][:80]!r} stands where {_told(words[run - 1] if run else '')} would run a card's text",
            hint="""give it as an argument behind the code: [sh, -c, 'exec tool "$1"', sh, "{prompt}"]""",
        )


def _told(before: str) -> str:
    return f"what follows {before[:80]!r}" if before else "the name of the program"


def _run_as_code(words: tuple[str, ...]) -> int | None:
    """Return the first placeholder that would be run, by its place."""
    if _PLACEHOLDER.search(words[0]):
        return 0
    at = 0
    while at < len(words):
        name = _program(words[at])
        at += 1
        if name in HAND_ON:
            return next((i for i in range(at, len(words)) if _PLACEHOLDER.search(words[i].replace(_OURS, ""))), None)
        if name in RUNNERS:
            found, at = _own_part(words, at, RUNNERS[name])
            if found is not None:
                return found
    return None


def _program(word: str) -> str:
    name = os.path.basename(word).removesuffix(".exe")
    found = _VERSIONED.fullmatch(name)
    return found[1] if found else name


def _own_part(words: tuple[str, ...], at: int, runner: Runner) -> tuple[int | None, int]:
    """Read the part of a command line that a runner reads itself.

    Returns:
        The place of a placeholder that it would run, and where to go on looking for others.
    """
    first = at
    while at < len(words):
        word = words[at]
        option, equals, _ = word.partition("=")
        if _runs(option, runner):
            value = at if equals else at + 1
            return (value if _PLACEHOLDER.search("".join(words[value : value + 1])) else None), len(words)
        if option in runner.values and not equals:
            at += 2
        elif word[:1] in ("-", "+") or runner.operand == DATA:
            at += 1
        elif _PLACEHOLDER.search(word):
            return at, len(words)
        elif runner.operand == PROGRAM and not _BEFORE_A_PROGRAM.fullmatch(word):
            return None, at
        elif runner.operand == SCRIPT and (at == first or not _PERHAPS_A_VALUE.fullmatch(word)):
            return None, len(words)
        else:
            at += 1
    return None, at


def _runs(option: str, runner: Runner) -> bool:
    """Whether the value of an option is run."""
    if option in runner.words or option.lower() in runner.words:
        return True
    bundle = option[1:] if option[:1] == "-" else ""
    return bundle.isalpha() and any(letter in runner.letters for letter in bundle)
