"""Templates of messages and advice: how the facts of a code become a text.

    {name}                    the fact of this name
    {name:span}               seconds as a length of time; see FORMATS for the other formats
    {name:# task|# tasks}     singular or plural; # is the number
    [ because: {reason}]      left out if one of its facts is missing or null

A number that equals the fact `counted_to` is where counting stopped: "1000 or more".
"""

import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast._words.units import size, span

Facts = Mapping[str, Any]

_FACT = re.compile(r"\{(\w+)(?::([^{}]*))?\}")
_OPTIONAL = re.compile(r"\[([^\[\]]*)\]")


@dataclass(frozen=True, slots=True)
class Words:
    """The message of a code, and what to do about it."""

    message: str
    advice: str | None = None
    always: bool = False
    """Whether the advice is given although the level is green."""

    @property
    def needed(self) -> set[str]:
        """Returns the facts without which there is no text."""
        return facts_of(_OPTIONAL.sub("", self.message + (self.advice or "")))

    @property
    def used(self) -> set[str]:
        return facts_of(self.message + (self.advice or ""))


@dataclass(frozen=True, slots=True)
class Wording:
    """The text about a code. Advice is null if there is nothing to do."""

    message: str
    advice: str | None


def facts_of(template: str) -> set[str]:
    return {found[1] for found in _FACT.finditer(template)}


def put(table: Mapping[str, Words], code: str, facts: Facts) -> Wording:
    """Puts facts into words. If this release has no words for them, they are shown as they are."""
    words = table.get(code)
    try:
        if words is not None:
            advice = None if words.advice is None else fill(words.advice, facts)
            return Wording(fill(words.message, facts), advice)
    except (KeyError, TypeError, ValueError):
        pass  # the engine is of another release
    return Wording(f"{code} {json.dumps(facts, ensure_ascii=False, default=str)}", None)


def fill(template: str, facts: Facts) -> str:
    def optional(found: re.Match[str]) -> str:
        there = all(facts.get(name) is not None for name in facts_of(found[1]))
        return found[1] if there else ""

    return _FACT.sub(lambda found: _written(facts, found[1], found[2]), _OPTIONAL.sub(optional, template))


def _written(facts: Facts, name: str, form: str | None) -> str:
    value = facts[name]
    if value is None:
        raise ValueError(name)
    if form and "|" in form:
        return _counted(value, form, facts.get("counted_to"))
    return FORMATS[form or ""](value)


def _counted(number: Any, form: str, counted_to: Any) -> str:
    singular, plural = form.split("|")
    shown = f"{_plain(number)} or more" if number == counted_to else _plain(number)
    return (singular if number == 1 else plural).replace("#", shown)


def _plain(value: Any) -> str:
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)


def _moment(value: str) -> str:
    """Returns a time without fractions, as PostgreSQL writes it."""
    if not value[:1].isdigit():
        return value  # infinity
    return datetime.fromisoformat(value).isoformat(" ", "seconds").removesuffix(":00")


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


FORMATS: dict[str, Callable[[Any], str]] = {
    "": _plain,
    "span": lambda seconds: span(max(0, seconds)),
    "moment": _moment,
    "size": size,
    "percent": lambda share: f"{100 * share:.1f} %",
    "millions": lambda number: str(int(number) // 1_000_000),
    "list": ", ".join,
    "json": lambda value: json.dumps(value, ensure_ascii=False),
    "shell": lambda value: shlex.quote(str(value)),
    "literal": _literal,
}
"""How a fact is written, by the name after the colon."""
