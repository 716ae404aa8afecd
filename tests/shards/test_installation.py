"""Shards that are installed, added, restored and checked, and settings that are wrong."""

import json
import re
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast._engine import Engine, enqueue, tasks
from holdfast._engine.enqueue import NewTask
from holdfast._install.schema import Choice
from holdfast.errors import DatabaseUnavailable, MigrationRefused
from holdfast.shards.check import check_shards
from holdfast.shards.migration import migrate_shards
from support.database import Database
from support.server import disposable_server
from support.shard_servers import LOGINS, ShardServers, shard_servers
from support.sharded import FrontDatabase, lost, run_holdfast
from support.web import web_dsn


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
        first.execute("update queues.unit set digest = 'older'")
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


def test_a_login_that_cannot_make_a_front_is_told_so_at_once(young: FrontDatabase) -> None:
    young.connect_alone().execute(
        "do $$ begin create role no_superuser login createrole; exception when duplicate_object then end $$"
    )
    plain = make_conninfo(young.dsn, user="no_superuser")
    with pytest.raises(MigrationRefused, match=r"no_superuser is no superuser.*Give a superuser's login"):
        migrate_shards(plain, young.settings)


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


def test_check_names_shards_that_the_front_does_not_reach_although_we_do(young: FrontDatabase) -> None:
    """As if the server of the front had no password for them."""
    with psycopg.connect(young.dsn) as connection:
        connection.execute(
            "create or replace function plproxy.get_cluster_partitions(cluster_name text) returns setof text"
            " language sql immutable as $$ values ('host=/nowhere'), ('host=/nowhere') $$"
        )
    check = run_holdfast("shards", "check", "--json", env=young.environment)

    assert check.returncode == 1
    found = json.loads(check.stdout)["differences"]
    assert [(one["shard"], one["what"]) for one in found] == [("s00", "connection"), ("s01", "connection")]
    assert "the front does not reach it: " in found[0]["difference"]


def test_a_new_shard_has_the_settings_of_the_first_before_it_gets_tasks(young: FrontDatabase) -> None:
    """Also those that no command could repeat: an access token is known only by its hash."""
    admin = young.connect()
    admin.execute("select queues.set_limit('queue', 'slow', 2)")
    admin.execute("select queues.pause('stopped')")
    admin.execute("select queues.set_retention('succeeded', '1 hour', 'bulk.')")
    admin.execute("select queues.add_to_namespace('postgres', 'shop')")
    admin.execute("select queues.create_token('ci', '{read}', sha256('secret'))")
    admin.execute("select queues.subscribe('all', 'http', 'https://example.com/', '{task.succeeded}')")
    young.close()
    settings = {**young.settings, "s02": young.server.url("young_2")}

    added = run_holdfast("shards", "add", env=environment(young, settings))
    assert (added.returncode, added.stderr) == (0, "")
    check = run_holdfast("shards", "check", env=environment(young, settings))
    assert (check.stdout, check.returncode) == ("3 shards, all alike\n", 0)
    with psycopg.connect(settings["s02"]) as new:
        for view in ("limit_status", "access_token_status", "outbox_status", "namespace_member"):
            assert new.execute(f"select count(*) from queues.{view}".encode()).fetchone() != (0,), view


def test_a_shard_that_the_front_does_not_reach_as_its_callers_gets_no_tasks(young: FrontDatabase) -> None:
    """As if the server of the front had no password of that login for it. We reach it."""
    caller = conninfo_to_dict(web_dsn(young))["user"]
    settings = {**young.settings, "s02": young.server.url("young_2")}
    with psycopg.connect(settings["s02"], autocommit=True) as admin:
        admin.execute("revoke connect on database young_2 from public")
        refused = run_holdfast("shards", "add", env=environment(young, settings))
        status = run_holdfast("shards", "status", "--json", env=young.environment)
        admin.execute("grant connect on database young_2 to public")
    added = run_holdfast("shards", "add", env=environment(young, settings))

    told = re.search(r"the server of the front cannot connect to shard s02 as ([\w, ]+): ", refused.stderr)
    assert refused.returncode == 3
    assert told, refused.stderr
    assert caller in told[1].split(", ")
    assert 'permission denied for database "young_2"' in refused.stderr
    assert len(json.loads(status.stdout)["shards"]) == 2
    assert added.stdout.endswith("front: generated\n")


@pytest.mark.full
@pytest.mark.timeout(240)
def test_no_call_fails_while_a_shard_is_added_whose_server_lacks_the_logins() -> None:
    with shard_servers(1) as servers, disposable_server(15) as other:
        with psycopg.connect(other.url("postgres"), autocommit=True) as admin:
            admin.execute("create database shard")
        env = {
            "DATABASE_URL": servers.fronts[0].url("front"),
            "HOLDFAST_SHARDS": f"s00={servers.settings['s00']} s01={other.url('shard')}",
        }
        refused = run_holdfast("shards", "add", env=env)
        _enqueue_as_shop(servers)
        with psycopg.connect(other.url("postgres"), autocommit=True) as admin:
            for login in LOGINS.values():
                admin.execute(f"create role {login} login")
        added = run_holdfast("shards", "add", env=env)
        _enqueue_as_shop(servers)
        with psycopg.connect(other.url("shard"), autocommit=True) as shard:
            assert shard.execute("select count(*) > 0 from queues.task").fetchone() == (True,)
            alike = run_holdfast("shards", "check", env=env)
            shard.execute("revoke holdfast_client from shop")
        check = run_holdfast("shards", "check", env=env)
        health = run_holdfast("health", env=env)

    assert refused.returncode == 3
    assert "shard s01: the logins runner, shop of the other shards do not exist" in refused.stderr
    assert (added.returncode, alike.stdout) == (0, "2 shards, all alike\n")
    assert check.returncode == 1
    assert "login shop in role holdfast_client" in check.stdout
    assert "shard s01 lacks grants that the front has: shop in holdfast_client" in health.stdout


def _enqueue_as_shop(servers: ShardServers) -> None:
    """Without keys, so that each call may go to any shard."""
    with psycopg.connect(servers.address(), autocommit=True) as shop:
        for _ in range(30):
            Engine(shop).run(enqueue.enqueue(NewTask("billing.charge")))


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


def test_all_shards_have_the_units_of_the_first_and_the_front_offers_no_others(front: FrontDatabase) -> None:
    names = ("small_front", "small_0", "small_1", "small_2")
    with psycopg.connect(front.server.url("postgres"), autocommit=True) as admin:
        for name in names:
            admin.execute(f"create database {name}")
        try:
            shards = {f"s0{n}": front.server.url(f"small_{n}") for n in range(3)}
            first_two = {name: shards[name] for name in ("s00", "s01")}
            small = front.server.url("small_front")
            migrate_shards(small, first_two, choice=Choice(unwanted=frozenset({"messages", "web"})))
            assert not migrate_shards(small, first_two).changed
            assert migrate_shards(small, shards, add=True).shards["s02"].missing == ("messages", "web")
            assert check_shards(small, shards) == []
            with psycopg.connect(small, autocommit=True) as connection:
                row = connection.execute(
                    "select queues.installed_units(), to_regnamespace('comms')"
                ).fetchone()
                assert row == (["core", "events"], None)
                Engine(connection).run(enqueue.enqueue(NewTask("demo.echo")))
            assert migrate_shards(small, shards, choice=Choice(frozenset({"messages"}))).front
            assert check_shards(small, shards) == []
        finally:
            for name in names:
                admin.execute(f"drop database {name} with (force)")
