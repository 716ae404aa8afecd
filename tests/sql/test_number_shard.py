"""The number of a shard: recorded once, and in every id from then on."""

import psycopg
import pytest

from holdfast._install.schema import Sources, migrate
from holdfast.errors import MigrationRefused
from holdfast.shards.front import Shard
from holdfast.shards.migration import number_shard
from support.database import Database
from support.engine import enqueue, enqueue_many

SOURCES = Sources()


def shard_of(task_id: object) -> int:
    """Byte 11 of the id."""
    return int(str(task_id).replace("-", "")[22:24], 16)


def test_ids_of_a_single_database_carry_the_number_0(db: Database) -> None:
    tasks = [
        enqueue(db.connect()),
        *(row["task_id"] for row in enqueue_many(db.connect(), [{"type": "a.b"}] * 3)),
    ]

    assert {shard_of(task_id) for task_id in tasks} == {0}


def test_ids_carry_the_number_of_the_shard_also_after_the_functions_were_replaced(db: Database) -> None:
    assert number_shard(Shard(5, "s05", db.dsn), 8, SOURCES)
    before = enqueue(db.connect())
    migrate(db.dsn, force=True)
    after = enqueue(db.connect())

    assert (shard_of(before), shard_of(after)) == (5, 5)
    assert str(before) < str(after)


def test_the_same_number_may_be_recorded_again_and_another_is_refused(db: Database) -> None:
    number_shard(Shard(1, "s01", db.dsn), 4, SOURCES)

    assert not number_shard(Shard(1, "s01", db.dsn), 4, SOURCES)
    for other, keys in (
        (Shard(2, "s01", db.dsn), 4),
        (Shard(1, "s02", db.dsn), 4),
        (Shard(1, "s01", db.dsn), 5),
    ):
        with pytest.raises(MigrationRefused, match="Put the settings back"):
            number_shard(other, keys, SOURCES)


def test_a_database_with_tasks_can_only_be_the_first_shard(db: Database) -> None:
    enqueue(db.connect())

    with pytest.raises(MigrationRefused, match="already holds tasks"):
        number_shard(Shard(1, "s01", db.dsn), 4, SOURCES)
    assert number_shard(Shard(0, "s00", db.dsn), 4, SOURCES)


def test_only_the_owner_numbers_a_shard(db: Database) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        db.connect("holdfast_operator").execute("select queues.number_shard('s01', 1, 4)")
