"""Shards that are installed, added, restored and checked, and settings that are wrong."""

import json
import re
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from holdfast.engine import Engine, enqueue, tasks
from holdfast.engine.enqueue import NewTask
from holdfast.errors import DatabaseUnavailable, MigrationRefused
from holdfast.shards.check import check_shards
from holdfast.shards.migration import migrate_shards
from support.database import Database
from support.shard_servers import shard_servers
from support.sharded import FrontDatabase, lost, run_holdfast


@pytest.fixture
def young(front: FrontDatabase) -> Iterator[FrontDatabase]:
    """A front of two shards that may be changed."""
    names = ("young_front", "young_0", "young_1", "young_2")
    with psycopg.connect(front.server.url("postgres"), autocommit=True) as admin:
        for name in names:
            copy = "" if name == "young_front" else " template template_shard"
            admin.execute(f"create database {name}{copy}")
        made = FrontDatabase(
            front.server, names[0], shards=[Database(front.server, name) for name in names[1:3]]
        )
        made.migrate()
        yield made
        made.close()
        for name in names:
            admin.execute(f"drop database {name} (force)")


def environment(front: FrontDatabase, shards: dict[str, str]) -> dict[str, str]:
    return {
        "DATABASE_URL": front.dsn,
        "HOLDFAST_SHARDS": " ".join(f"{name}={url}" for name, url in shards.items()),
    }


def numbers(database: str) -> list[tuple[str, int]]:
    with psycopg.connect(database) as connection:
        return connection.execute("select shard_name, shard_number from queues.shard").fetchall()


def test_a_lost_shard_stops_a_migration_before_anything_is_changed(young: FrontDatabase) -> None:
    with psycopg.connect(young.shards[0].dsn) as first:
        first.execute("update queues.installation set digest = 'older'")
    with lost(young, 1) as name:
        with pytest.raises(DatabaseUnavailable, match=f"shard {name}: "):
            migrate_shards(young.dsn, young.settings)
        refused = run_holdfast("migrate", env=young.environment)

    assert (refused.returncode, f"shard {name}: " in refused.stderr) == (5, True)
    assert migrate_shards(young.dsn, young.settings).shards["s00"].action == "replay"
    assert not migrate_shards(young.dsn, young.settings).changed


def test_a_shard_is_added_at_the_end_and_nowhere_else(young: FrontDatabase) -> None:
    new = {"s02": young.server.url("young_2")}
    first, second = young.settings.items()
    with pytest.raises(MigrationRefused, match=r"shard s02 is new.*holdfast shards add"):
        migrate_shards(young.dsn, {**young.settings, **new})
    middle = dict([first, *new.items(), second])
    with pytest.raises(MigrationRefused, match="shard s01: This database is shard s01, number 1"):
        migrate_shards(young.dsn, middle, add=True)
    assert numbers(young.server.url("young_2")) == []

    added = run_holdfast("shards", "add", "--json", env=environment(young, {**young.settings, **new}))
    document = json.loads(added.stdout)
    assert (document["front"], document["shards"]["s02"]["action"]) == (True, "nothing")
    assert numbers(young.server.url("young_2")) == [("s02", 2)]
    again = run_holdfast("shards", "add", env=environment(young, {**young.settings, **new}))
    assert again.stdout.endswith("front: nothing to do\n")


def test_a_lock_that_any_login_can_take_does_not_stop_a_migration(young: FrontDatabase) -> None:
    with psycopg.connect(young.dsn) as stranger:
        stranger.execute("select pg_advisory_xact_lock(hashtext('holdfast_front'))")
        assert not migrate_shards(young.dsn, young.settings).changed


def test_a_migration_of_the_same_front_is_named_instead_of_waited_for(young: FrontDatabase) -> None:
    with psycopg.connect(young.dsn) as other:
        other.execute("lock table holdfast_front.generated in share update exclusive mode")
        with pytest.raises(MigrationRefused, match="another migration of this front is running"):
            migrate_shards(young.dsn, young.settings)


def test_a_shard_that_is_lost_is_not_added(young: FrontDatabase) -> None:
    nowhere = make_conninfo(young.server.url("young_2"), dbname="nowhere")
    added = run_holdfast(
        "shards", "add", env=environment(young, {**young.settings, "s02": nowhere.replace(" ", "&")})
    )
    assert added.returncode != 0
    assert (
        len(json.loads(run_holdfast("shards", "status", "--json", env=young.environment).stdout)["shards"])
        == 2
    )


def test_one_database_cannot_be_two_shards(front: FrontDatabase) -> None:
    """Two addresses that are the same by mistake."""
    one = front.settings["s00"]
    with pytest.raises(MigrationRefused, match="shard s01: This database is shard s00, number 0"):
        migrate_shards(front.dsn, {**front.settings, "s01": one})


def test_a_database_that_was_restored_from_before_it_was_a_shard_is_found_and_not_numbered(
    young: FrontDatabase,
) -> None:
    with psycopg.connect(young.shards[1].dsn) as restored:
        restored.execute("select queues.enqueue('billing.charge')")
        restored.execute("delete from queues.shard")
    found = check_shards(young.dsn, young.settings)

    assert [(one.shard, one.what) for one in found if one.what == "number"] == [("s01", "number")]
    assert "the database says not numbered" in found[0].difference
    with pytest.raises(
        MigrationRefused, match="shard s01: The database of shard s01, number 1, already holds"
    ):
        migrate_shards(young.dsn, young.settings)


def test_a_front_of_another_release_is_found_and_brought_up_to_date(young: FrontDatabase) -> None:
    assert check_shards(young.dsn, young.settings) == []
    with psycopg.connect(young.dsn) as connection:
        connection.execute("drop function queues.cancel")
        connection.execute("update holdfast_front.generated set digest = 'of another release'")

    [found] = check_shards(young.dsn, young.settings)
    assert (found.shard, found.what) == ("front", "release")
    planned = run_holdfast("migrate", "--check", "--json", env=young.environment)
    assert (planned.returncode, json.loads(planned.stdout)["front"]) == (1, True)
    task_id = Engine(young.connect()).run(enqueue.enqueue(NewTask("billing.charge")))
    old = run_holdfast("cancel", str(task_id), env=young.environment)
    assert "Run holdfast migrate" in old.stderr
    assert migrate_shards(young.dsn, young.settings).front
    assert run_holdfast("migrate", "--check", env=young.environment).returncode == 0
    assert Engine(young.connect()).run(tasks.cancel(task_id)) == "cancelled"


def test_the_password_of_an_administrator_is_nowhere_on_a_front(young: FrontDatabase) -> None:
    secret = "sekret-of-the-admin"  # noqa: S105 - what must not be found
    settings = {name: f"{url}&password={secret}" for name, url in young.settings.items()}
    assert secret in make_conninfo(settings["s00"])
    migrate_shards(young.dsn, settings, force=True)
    with psycopg.connect(young.dsn) as connection:
        catalogs = [
            "select umoptions::text from pg_user_mapping",
            "select srvoptions::text from pg_foreign_server",
            "select prosrc from pg_proc where pronamespace::regnamespace::text ~ 'proxy|front'",
            "select address from holdfast_front.shard",
            "select ftoptions::text from pg_foreign_table",
        ]
        texts = [str(row) for catalog in catalogs for row in connection.execute(catalog.encode()).fetchall()]

    assert texts
    assert not any(secret in text for text in texts)


@pytest.mark.parametrize("command", [["shards", "status"], ["shards", "check"], ["shards", "add"]])
def test_the_commands_say_what_is_missing_without_shards(front: FrontDatabase, command: list[str]) -> None:
    told = run_holdfast(*command, env={"DATABASE_URL": front.shards[0].dsn, "HOLDFAST_SHARDS": ""})

    assert told.returncode == 2
    assert re.search(r"DATABASE_URL|HOLDFAST_SHARDS", told.stderr), told.stderr


def test_check_names_what_is_lost_and_status_says_why(young: FrontDatabase) -> None:
    with lost(young, 1) as name:
        status = run_holdfast("shards", "status", env=young.environment)
        check = run_holdfast("shards", "check", "--json", env=young.environment)

    assert (status.returncode, check.returncode) == (2, 1)
    assert re.search(rf"{name} +1 +lost .*not currently accepting connections", status.stdout), status.stdout
    assert [(one["shard"], one["what"]) for one in json.loads(check.stdout)["differences"]] == [
        (name, "connection")
    ]


@pytest.mark.full
def test_a_login_that_a_shard_does_not_know_is_told_where_it_is_missing() -> None:
    with shard_servers(1) as servers:
        front = servers.fronts[0].url("front")
        with psycopg.connect(front, autocommit=True) as admin:
            admin.execute("create role newcomer login in role holdfast_client")
        granted = run_holdfast("grant", "newcomer", "--as", "client", env=servers.environment())
        migrate_shards(front, servers.settings)  # maps it
        with psycopg.connect(make_conninfo(front, user="newcomer"), autocommit=True) as login:
            engine = Engine(login)
            for call in (enqueue.enqueue(NewTask("billing.charge", idempotency_key="k")), tasks.list_tasks()):
                with pytest.raises(
                    DatabaseUnavailable, match=r'shard s00 cannot be reached.*"newcomer"'
                ) as told:
                    engine.run(call)
                assert "holdfast grant" in str(told.value)

    assert granted.returncode == 4
    assert "the login 'newcomer' does not exist on s00" in granted.stderr
