"""The declarations of the verbs agree with the methods, with the transition table, with the rights, with the limits."""

from __future__ import annotations

import inspect
from importlib import import_module

import pytest

from hermes_kanban.base.limits import LIMITS
from hermes_kanban.base.record import Record
from hermes_kanban.cli.app import MODULE_OF
from hermes_kanban.kernel import create, query
from hermes_kanban.kernel.board import Board
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.kernel.reader import Reader
from hermes_kanban.kernel.values import _EDITABLE
from hermes_kanban.kernel.verbs import ALIASES, BY_NAME, GROUPS, TYPES, VERBS, Verb
from hermes_kanban.model import actors, transitions
from hermes_kanban.model.blocks import Reason
from hermes_kanban.model.task import TaskDraft

RECORDS: dict[str, type[Record]] = {"draft": TaskDraft, "wanted": query.Filter, "handoff": Handoff, "reason": Reason}
WITH_METHOD = [verb for verb in VERBS if verb.method]
ABOUT_BOARDS = [verb for verb in VERBS if not verb.method]
NOT_YET = {"specify", "decompose", "delete"}  # verbs of later parts
BY_ITSELF = {"take_over", "promote-child", "regate", "release-due", "end-run", "trip", "probe"}  # nobody calls these

each_verb = pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
each_with_method = pytest.mark.parametrize("verb", WITH_METHOD, ids=lambda verb: verb.name)


def arguments(verb: Verb) -> dict[str, inspect.Parameter]:
    found = dict(inspect.signature(getattr(Board, verb.method)).parameters)
    found.pop("self")
    return found


@each_with_method
def test_each_value_goes_to_an_argument_or_a_field_that_is_there(verb: Verb) -> None:
    there = arguments(verb)
    for parameter in verb.parameters:
        if parameter.of_surface:
            continue
        argument, dot, field = parameter.target.partition(".")
        assert argument in there, f"{verb.method} has no argument {argument}"
        if dot and argument == "changes":
            assert field in _EDITABLE
        elif dot:
            assert field in RECORDS[argument].FIELDS


@each_with_method
def test_each_argument_of_the_method_can_be_given(verb: Verb) -> None:
    given = {p.target.partition(".")[0] for p in verb.parameters}
    left_to_the_surface = {"bulk", "limit", "events", "host"}
    assert set(arguments(verb)) - given <= left_to_the_surface


@each_with_method
def test_what_the_method_needs_is_required(verb: Verb) -> None:
    needed = {n for n, p in arguments(verb).items() if p.default is p.empty} - {
        "wanted",
        "handoff",
        "reason",
        "changes",
    }
    required = {p.target.partition(".")[0] for p in verb.parameters if p.required}
    may_be_worked_out = {"since"} if verb.name == "watch" else set()
    assert needed - may_be_worked_out == required - {"changes"}


@each_with_method
def test_reads_are_methods_of_the_reader_and_writes_are_not(verb: Verb) -> None:
    assert verb.writes == (not hasattr(Reader, verb.method))


@each_verb
def test_a_declaration_is_in_order(verb: Verb) -> None:
    names = [p.name for p in verb.parameters]
    assert len(set(names)) == len(names)
    assert verb.group in GROUPS
    positional = [p for p in verb.parameters if p.positional]
    assert [p.required for p in positional] == sorted((p.required for p in positional), reverse=True)
    assert not any(p.many for p in positional[:-1])
    for parameter in verb.parameters:
        assert parameter.type in TYPES
        assert parameter.help
        assert not parameter.help.endswith(".")
        assert (parameter.type in ("int", "seconds", "pause", "when")) == bool(parameter.limit)
        assert (parameter.type == "choice") == bool(parameter.choices)
        if parameter.limit:
            assert parameter.limit in LIMITS
        if parameter.type == "flag":
            assert (parameter.many, parameter.required) == (False, False)


def test_every_verb_that_a_caller_may_use_is_declared() -> None:
    assert set(transitions.BY_VERB) - BY_ITSELF - NOT_YET <= set(BY_NAME)
    asked_for = {verb for rights in actors.RIGHTS.values() for verb in rights}
    assert asked_for - BY_ITSELF - NOT_YET <= set(BY_NAME)


def test_what_moves_a_card_is_declared_as_a_write() -> None:
    for name in set(transitions.BY_VERB) & set(BY_NAME):
        assert BY_NAME[name].writes


def test_the_words_of_closed_vocabularies_are_the_kernel_s() -> None:
    choices = {p.name: p.choices for p in BY_NAME["list"].parameters}
    assert choices["sort"] == query.SORTS
    assert {p.name: p.choices for p in BY_NAME["create"].parameters}["status"] == create.INITIAL


def test_every_verb_has_a_handler_in_the_module_that_the_table_names() -> None:  # habit 13
    assert set(MODULE_OF) == set(BY_NAME)
    for verb, module in MODULE_OF.items():
        assert verb in import_module(f"hermes_kanban.cli.{module}").HANDLERS


def test_no_module_has_a_handler_that_the_table_does_not_know() -> None:
    for module in set(MODULE_OF.values()):
        assert set(import_module(f"hermes_kanban.cli.{module}").HANDLERS) <= set(MODULE_OF)


def test_an_alias_is_another_word_for_a_verb() -> None:
    assert all(verb in BY_NAME and alias not in BY_NAME for alias, verb in ALIASES.items())
    not_of_one_board = ("boards", "lanes", "processes")
    assert {verb.name for verb in ABOUT_BOARDS} == {verb.name for verb in VERBS if verb.group in not_of_one_board}
