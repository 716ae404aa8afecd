"""How codes and facts become what people read."""

from typing import Any

import pytest

from holdfast._words.explanation import EXPLANATION, explanation_words
from holdfast._words.health import HEALTH, health_words
from holdfast._words.template import Words, fill, put


@pytest.mark.parametrize(
    ("template", "facts", "text"),
    [
        ("{name} waits", {"name": "mail"}, "mail waits"),
        ("for {seconds:span}", {"seconds": 3900}, "for 1 h 5 min"),
        ("for {seconds:span}", {"seconds": -1}, "for 0 ms"),
        ("until {at:moment}", {"at": "2030-01-31T12:00:00.9+00:00"}, "until 2030-01-31 12:00:00+00"),
        ("until {at:moment}", {"at": "2030-01-31T12:00:00+05:30"}, "until 2030-01-31 12:00:00+05:30"),
        ("until {at:moment}", {"at": "infinity"}, "until infinity"),
        ("{n:# task|# tasks}", {"n": 1}, "1 task"),
        ("{n:# task|# tasks}", {"n": 0.0}, "0 tasks"),
        ("{n:# task|# tasks}", {"n": 1000, "counted_to": 1000}, "1000 or more tasks"),
        ("paused[ because: {reason}]", {"reason": "moving"}, "paused because: moving"),
        ("paused[ because: {reason}]", {"reason": None}, "paused"),
        ("paused[ because: {reason}]", {}, "paused"),
        ("holdfast resume {name:shell}", {"name": "a; b"}, "holdfast resume 'a; b'"),
        ("commit prepared {name:literal}", {"name": "it's"}, "commit prepared 'it''s'"),
        ("{share:percent} full", {"share": 0.125}, "12.5 % full"),
        ("in {names:list}", {"names": ["a", "b"]}, "in a, b"),
    ],
)
def test_facts_are_put_into_a_template(template: str, facts: dict[str, Any], text: str) -> None:
    assert fill(template, facts) == text


@pytest.mark.parametrize("fact", ["{other}", "[x]", "%s", "{name:span}", "\\1"])
def test_what_people_write_is_not_read_as_a_template(fact: str) -> None:
    assert fill("because: {name}[ {name}]", {"name": fact}) == f"because: {fact} {fact}"


def test_a_code_without_words_is_shown_with_its_facts() -> None:
    assert put({}, "of_tomorrow", {"n": 7}).message == 'of_tomorrow {"n": 7}'
    told = health_words("of_tomorrow", "red", "mail", 7, {})
    assert (told.message, told.advice) == ('of_tomorrow {"subject": "mail", "value": 7}', None)


@pytest.mark.parametrize("facts", [{}, {"n": None}, {"n": "x"}])
def test_a_fact_that_words_lack_or_cannot_read_is_no_exception(facts: dict[str, Any]) -> None:
    assert put({"late": Words("late by {n:span}")}, "late", facts).message.startswith("late {")


def test_every_format_of_every_template_is_known() -> None:
    facts = {name: 1 for words in [*HEALTH.values(), *EXPLANATION.values()] for name in words.used}
    times = {"at", "until", "since", "lease_until", "recovered_at", "retry_at"}
    known: dict[str, Any] = facts | dict.fromkeys(times, "2030-01-31T12:00:00+00:00")
    known |= {"name": "one", "namespaces": ["a"], "causes": [{"code": "rate_used_up"}], "counted_to": 10}
    for code in HEALTH:
        assert not health_words(code, "red", "one", 1, known).message.startswith(f"{code} {{")
    for code in EXPLANATION:
        assert not explanation_words(code, known).message.startswith(f"{code} {{")


def test_a_green_line_has_advice_only_if_it_helps_at_once() -> None:
    facts = {"used": 1, "leaving": None}
    assert health_words("lanes", "green", None, 1, facts).advice is None
    assert health_words("lanes", "amber", None, 10_000, facts).advice
    assert health_words("no_workers", "green", None, 0, {}).advice == "Start one: holdfast worker"
