"""Compares shards: their numbers, and the settings that should be the same on all of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psycopg

from holdfast._connections.session import DatabaseAddress
from holdfast._install.schema import Sources
from holdfast._install.schema.sources import SqlPiece
from holdfast.errors import HoldfastError, translate
from holdfast.shards.front import Shard, front_problem
from holdfast.shards.joining import grants_of
from holdfast.shards.logins import FRONT
from holdfast.shards.migration import key_shards, listed
from holdfast.shards.status import front_status


@dataclass(frozen=True)
class Difference:
    shard: str
    what: str
    difference: str


def check_shards(front: str | None, shards: Mapping[str, str]) -> list[Difference]:
    """Everything that differs from the settings, or from the first shard. A lost shard is a difference."""
    sources = Sources()
    found: list[Difference] = []
    first: dict[str, set[str]] | None = None
    for shard in listed(shards):
        try:
            with psycopg.connect(shard.url, client_encoding="utf-8", connect_timeout=5) as connection:
                facts = _facts(connection, sources)
        except psycopg.Error as error:
            found.append(Difference(shard.name, "connection", str(translate(error))))
            continue
        found += _numbered(shard, facts)
        first = first or facts
        found += _compared(shard, first, facts)
    lost = {one.shard for one in found if one.what == "connection"}
    return found + _front_differences(front, shards, sources, lost)


def _front_differences(
    front: str | None, shards: Mapping[str, str], sources: Sources, lost: set[str]
) -> list[Difference]:
    if front is None:
        return [Difference(FRONT, "connection", "DATABASE_URL, the address of the front, is not set")]
    try:
        problem = front_problem(front, listed(shards), key_shards(shards), sources)
        if problem is not None:
            return [Difference(FRONT, "release", f"{problem}: run holdfast migrate")]
        status = front_status(DatabaseAddress(lambda: front))
    except HoldfastError as error:
        return [Difference(FRONT, "connection", str(error))]
    return [
        Difference(one.shard_name, "connection", f"the front does not reach it: {one.problem}")
        for one in status
        if not one.reached and one.shard_name not in lost
    ]


def _facts(connection: psycopg.Connection[Any], sources: Sources) -> dict[str, set[str]]:
    facts: dict[str, set[str]] = {}
    _add_facts(facts, connection, sources.section("front/catalog.sql", "facts"))
    for part in sources.units:
        if part.unit in facts["unit"]:
            for piece in part.of("facts"):
                _add_facts(facts, connection, piece)
    facts["grant"] = {f"login {login} in role {role}" for login, role in grants_of(connection, sources)}
    return facts


def _add_facts(facts: dict[str, set[str]], connection: psycopg.Connection[Any], piece: SqlPiece) -> None:
    for what, fact in connection.execute(piece.sql.encode()).fetchall():
        facts.setdefault(what, set()).add(fact)


def _numbered(shard: Shard, facts: dict[str, set[str]]) -> list[Difference]:
    expected = f"{shard.name}, number {shard.number}"
    known = "".join(facts.pop("number", {"not numbered"}))
    if known == expected:
        return []
    return [Difference(shard.name, "number", f"the settings say {expected}, the database says {known}")]


def _compared(shard: Shard, first: dict[str, set[str]], facts: dict[str, set[str]]) -> list[Difference]:
    return [
        Difference(shard.name, what, f"{word} {fact}")
        for what in sorted(first.keys() | facts.keys())
        for word, odd in (
            ("lacks", first.get(what, set()) - facts.get(what, set())),
            ("has, unlike the first shard,", facts.get(what, set()) - first.get(what, set())),
        )
        for fact in sorted(odd)
    ]
