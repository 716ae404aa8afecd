"""Installs every shard, numbers it, and generates the front."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from holdfast._install.schema import Choice, Migration, Sources, migrate, plan
from holdfast._install.schema.migration import Echo, become_owner, in_transaction
from holdfast.errors import ConfigurationError, HoldfastError, MigrationRefused
from holdfast.shards.front import Shard, front_problem, generate, known_shards
from holdfast.shards.joining import has_tasks, make_alike
from holdfast.shards.reaching import require_reached
from holdfast.sql.optional_units import NAMES


@dataclass(frozen=True)
class ShardsMigration:
    """What was done to each shard, and whether the front is new."""

    shards: dict[str, Migration]
    front: bool

    @property
    def changed(self) -> bool:
        return self.front or any(done.action != "nothing" for done in self.shards.values())

    def __str__(self) -> str:
        lines = [f"{name}: {done}" for name, done in self.shards.items()]
        return "\n".join([*lines, "front: generated" if self.front else "front: nothing to do"])


def listed(shards: Mapping[str, str]) -> list[Shard]:
    """The shards of the settings, in their order."""
    return [Shard(number, name, url) for number, (name, url) in enumerate(shards.items())]


def migrate_shards(
    front: str | None,
    shards: Mapping[str, str],
    *,
    echo: Echo | None = None,
    force: bool = False,
    choice: Choice | None = None,
    add: bool = False,
    sources: Sources | None = None,
) -> ShardsMigration:
    """Safe to repeat: what is done stays done. `add` allows shards that there were not at first."""
    front = _required(front)
    files = sources or Sources()
    done: dict[str, Migration] = {}
    recorded = _recorded_keys(shards)  # of all of them, before anything is changed
    keys = _key_shards(shards, recorded)
    for shard in listed(shards):
        if recorded[shard.name] is not None:
            with _naming(shard):
                number_shard(shard, keys, files)  # refuses another order, and changes nothing
        elif shard.number >= keys and not add:
            raise MigrationRefused(
                f"shard {shard.name} is new. Keys stay on the first {keys} shards, so it would get only "
                "tasks without a key. Run holdfast shards add if that is what you want."
            )
    known = known_shards(front)
    for shard in listed(shards):
        with _naming(shard):
            done[shard.name] = migrate(shard.url, echo=echo, force=force, choice=choice, sources=files)
            choice = _like_first(choice, done[shard.name])
            number_shard(shard, keys, files)
            if shard.number > 0 and shard.name not in known and not has_tasks(shard):
                make_alike(listed(shards)[0], shard, files)
    for shard in listed(shards):
        if known and shard.name not in known:
            require_reached(front, listed(shards)[0], shard)
    return ShardsMigration(done, generate(front, listed(shards), keys, files, force=force))


def plan_shards(
    front: str | None, shards: Mapping[str, str], *, force: bool = False, choice: Choice | None = None
) -> ShardsMigration:
    """What `migrate_shards` would do. Changes nothing."""
    front = _required(front)
    found = {}
    for shard in listed(shards):
        with _naming(shard):
            found[shard.name] = plan(shard.url, force=force, choice=choice)
            choice = _like_first(choice, found[shard.name])
    pending = any(one.action != "nothing" for one in found.values())
    changed = pending or front_problem(front, listed(shards), key_shards(shards), Sources()) is not None
    return ShardsMigration(found, force or changed)


def _like_first(choice: Choice | None, first: Migration) -> Choice:
    """Every shard has the units of the first one: the front offers one list of functions."""
    if choice is not None and choice.wanted | choice.unwanted == set(NAMES):
        return choice
    return Choice(frozenset(NAMES) - set(first.missing), frozenset(first.missing))


def _required(front: str | None) -> str:
    if front is None:
        raise ConfigurationError(
            "there are shards, but no front: set DATABASE_URL to the address of an empty database",
            hint="It needs PostgreSQL 15 or later with the extensions plproxy and postgres_fdw.",
        )
    return front


@contextmanager
def _naming(shard: Shard) -> Iterator[None]:
    """Say in an error which shard it is about."""
    try:
        yield
    except HoldfastError as error:
        error.message = f"shard {shard.name}: {error.message}"
        error.args = (error.message,)
        raise


def key_shards(shards: Mapping[str, str]) -> int:
    """How many shards keys are spread over: as the first shard recorded, or all if it is new."""
    first = listed(shards)[0]
    with _naming(first):
        return _key_shards(shards, {first.name: _recorded(first)})


def _key_shards(shards: Mapping[str, str], recorded: Mapping[str, int | None]) -> int:
    known = recorded[next(iter(shards))]
    if known is None:
        return len(shards)
    if known > len(shards):
        raise MigrationRefused(
            f"there are {known} shards, and the settings have {len(shards)}. Put them back."
        )
    return known


def _recorded_keys(shards: Mapping[str, str]) -> dict[str, int | None]:
    found = {}
    for shard in listed(shards):
        with _naming(shard):
            found[shard.name] = _recorded(shard)
    return found


def _recorded(shard: Shard) -> int | None:
    """How many shards have keys, as this one recorded it; None if it was never numbered."""

    def work(connection: psycopg.Connection[Any]) -> int | None:
        row = connection.execute("select to_regclass('queues.shard') is not null").fetchone()
        if not row or not row[0]:
            return None
        become_owner(connection)
        found = connection.execute("select key_shards from queues.shard").fetchone()
        return int(found[0]) if found else None

    return in_transaction(shard.url, work)


def number_shard(shard: Shard, keys: int, sources: Sources) -> bool:
    """Record the number, and put it into the ids of new tasks. Return whether it is new."""

    def work(connection: psycopg.Connection[Any]) -> bool:
        become_owner(connection)
        row = connection.execute(
            "select queues.number_shard(%s, %s, %s)", (shard.name, shard.number, keys)
        ).fetchone()
        is_new = bool(row and row[0])
        if is_new:
            connection.execute(sources.read("functions/shards.sql").sql.encode())
        return is_new

    return in_transaction(shard.url, work)
