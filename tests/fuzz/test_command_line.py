"""Every verb, fuzzed from its declaration through the real entry function (T6).

`HERMES_TEST_EXAMPLES` (default 250) says how hard: a verb gets a fortieth of it as examples, each with two calls.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_kanban.kernel.verbs import VERBS, Verb
from tests.fuzz import ground, words
from tests.fuzz.judge import judge

EXAMPLES = int(os.environ.get("HERMES_TEST_EXAMPLES", "250"))
HOW = settings(
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
each_verb = pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
callers = st.sampled_from(sorted(ground.CALLERS)).map(ground.CALLERS.__getitem__)
inputs = st.sampled_from((b"", b"a text", b'{"a": 1}', b"\xff\xfe", b"[" * 3000, b"tasks: [{title: x}]", b"\0"))


@each_verb
@settings(HOW, max_examples=max(4, EXAMPLES // 40))
@given(data=st.data())
def test_a_call_is_done_or_refused_with_a_reason(verb: Verb, data: st.DataObject) -> None:  # T6
    with ground.fresh() as here:
        for _ in range(2):
            told, several = data.draw(words.line(verb), "words")
            seen = here.call(told, data.draw(callers, "caller"), data.draw(inputs, "stdin"))
            judge(here, seen, several=several)


@settings(HOW, max_examples=max(4, EXAMPLES // 6))
@given(words.any_line(), callers, inputs)
def test_words_that_call_nothing_are_refused_too(made: words.Line, caller: dict[str, str], stdin: bytes) -> None:  # T6
    with ground.fresh() as here:
        judge(here, here.call(made.words, caller, stdin), several=made.several)
