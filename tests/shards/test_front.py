"""A front as its users and its neighbours meet it: installation, rights, lost shards, and what it shows."""

import json
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from holdfast import DatabaseUnavailable
from holdfast._engine import (
    Engine,
    access,
    enqueue,
    error_groups,
    health,
    leases,
    queues,
    task_actions,
    tasks,
    workers,
)
from holdfast._engine.enqueue import NewTask
from holdfast._engine.tasks import TaskFilter
from holdfast.errors import MigrationRefused, NotAllowed, NotFound, PartialBatchError
from holdfast.shards.migration import migrate_shards
from support.leases import ended
from support.sharded import FrontDatabase, lost, run_holdfast


def partial(front: FrontDatabase) -> psycopg.Connection[Any]:
    connection = front.connect_alone()
    connection.execute("set holdfast.partial = on")
    return connection


def test_a_migration_that_is_repeated_does_nothing(front: FrontDatabase) -> None:
    front.migrate()
    assert not migrate_shards(front.dsn, front.settings).changed


@pytest.mark.parametrize("change", ["order", "fewer", "more", "names"])
def test_a_change_of_order_count_or_names_is_refused(front: FrontDatabase, change: str) -> None:
    front.migrate()  # another test may have added a login
    pairs = list(front.settings.items())
    changed = {
        "order": [("s00", pairs[1][1]), ("s01", pairs[0][1]), *pairs[2:]],
        "fewer": pairs[:3],
        "more": [*pairs, ("s04", front.server.url("template_shard"))],
        "names": [("a0", pairs[0][1]), *pairs[1:]],
    }[change]

    with pytest.raises(MigrationRefused):
        migrate_shards(front.dsn, dict(changed))
    assert not migrate_shards(front.dsn, front.settings).changed


def test_a_database_with_tasks_is_not_made_a_front(front: FrontDatabase) -> None:
    with pytest.raises(MigrationRefused, match="holds tasks"):
        migrate_shards(front.shards[0].dsn, front.settings)


def test_a_login_sees_and_cancels_its_own_tasks_and_no_others(front: FrontDatabase) -> None:
    others = Engine(front.connect()).run(enqueue.enqueue(NewTask("billing.charge")))
    client = Engine(front.connect("holdfast_client"))
    own = client.run(enqueue.enqueue(NewTask("billing.charge")))

    assert [task.task_id for task in client.run(tasks.list_tasks())] == [own]
    seen = client.connection.execute("select enqueued_by from queues.task_status").fetchall()
    assert seen == [("holdfast_client_login",)]
    assert client.run(tasks.cancel(own)) == "cancelled"
    with pytest.raises(NotFound):
        client.run(tasks.cancel(others))
    with pytest.raises(NotAllowed):
        client.run(tasks.retry(own))


def test_many_tasks_of_all_shards_are_changed_and_their_errors_are_one_group(front: FrontDatabase) -> None:
    engine = Engine(front.connect())
    ids = [one.task_id for one in engine.run(enqueue.enqueue_many([NewTask("shop.pay")] * 24))]
    for shard in front.shards:
        connection = Engine(shard.connect())
        for task in connection.run(leases.claim("w1", 24, queues=["shop"])):
            error = {"kind": "handler_error", "message": f"card {task.token} declined"}
            connection.run(leases.finish("w1", [ended(task.task_id, task.token, "failed", error=error)]))
    [group] = engine.run(error_groups.list_error_groups())
    assert (group.title, group.errors, sum(group.trend)) == ("card # declined", 24, 24)

    matching = TaskFilter("failed", error_group=group.error_group)
    assert [(one.status, one.tasks) for one in engine.run(task_actions.count_tasks(matching))] == [
        ("failed", 24)
    ]
    found = engine.run(tasks.find_tasks(matching, None, 100))
    acted = engine.run(task_actions.act_on_tasks("retry", found.task_ids, "mended"))
    assert {(one.task_id, one.changed) for one in acted} == {(one, True) for one in ids}


def test_a_login_can_neither_read_nor_change_how_the_front_connects(front: FrontDatabase) -> None:
    client = front.connect("holdfast_client")
    options = client.execute(
        "select umoptions from pg_user_mappings where usename <> current_user"
    ).fetchall()

    assert options
    assert {row[0] for row in options} == {None}
    for statement in (
        "alter user mapping for current_user server holdfast_s00 options (set user 'postgres')",
        "create user mapping for public server holdfast_s00 options (user 'postgres')",
        "create foreign table pg_temp.f (n integer) server holdfast_s00",
        "alter server holdfast_s00 options (set host 'elsewhere')",
        "create function pg_temp.f() returns int language plproxy as 'connect ''user=postgres''; select 1;'",
        "create or replace function plproxy.get_cluster_version(text) returns integer language sql as ''",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            client.execute(statement)
    assert "password" not in str(client.execute("select srvoptions from pg_foreign_server").fetchall())


def test_a_task_on_another_shard_is_served_while_one_is_lost(front: FrontDatabase) -> None:
    made = [Engine(shard.connect()).run(enqueue.enqueue(NewTask("billing.charge"))) for shard in front.shards]
    with lost(front, 2) as name:
        engine = Engine(front.connect_alone())

        assert [engine.run(tasks.cancel(task_id)) for n, task_id in enumerate(made) if n != 2] == [
            "cancelled"
        ] * 3
        with pytest.raises(DatabaseUnavailable, match=f"shard {name} cannot be reached"):
            engine.run(tasks.task_status(made[2]))
        for _ in range(12):  # a task without a key goes elsewhere
            assert engine.run(enqueue.enqueue(NewTask("billing.charge"))).bytes[11] != 2
    assert Engine(front.connect()).run(tasks.cancel(made[2])) == "cancelled"


def test_a_list_is_refused_while_a_shard_is_lost_unless_the_session_takes_a_part(
    front: FrontDatabase,
) -> None:
    for shard in front.shards:
        Engine(shard.connect()).run(enqueue.enqueue(NewTask("billing.charge")))
    with lost(front, 1) as name:
        with pytest.raises(DatabaseUnavailable, match=name):
            Engine(front.connect_alone()).run(tasks.list_tasks())
        engine = Engine(partial(front))
        warnings: list[str | None] = []
        engine.connection.add_notice_handler(lambda notice: warnings.append(notice.message_primary))

        assert len(engine.run(tasks.list_tasks())) == 3
        assert [queue.due for queue in engine.run(queues.queue_status())] == [3]
        assert any(name in str(warning) for warning in warnings)
    assert len(engine.run(tasks.list_tasks())) == 4
    assert [queue.due for queue in engine.run(queues.queue_status())] == [4]


def test_health_is_red_for_the_lost_shard_and_tells_of_the_others(front: FrontDatabase) -> None:
    with lost(front, 3) as name:
        lines = Engine(front.connect_alone()).run(health.health())

    assert (lines[0].check_name, lines[0].level, lines[0].subject) == ("shard", "red", name)
    assert {str(line.subject)[:3] for line in lines} == {"s00", "s01", "s02", "s03"}


def test_a_batch_writes_what_it_can_and_says_what_it_could_not(front: FrontDatabase) -> None:
    batch = [NewTask("billing.charge", idempotency_key=f"k{n}") for n in range(40)]
    with (
        lost(front, 0) as name,
        pytest.raises(PartialBatchError, match=f"not known how many on shard {name}"),
    ):
        Engine(front.connect_alone()).run(enqueue.enqueue_many(batch))
    engine = Engine(front.connect())
    written = len(engine.run(tasks.list_tasks(max_tasks=100)))
    answers = engine.run(enqueue.enqueue_many(batch))

    assert 0 < written < 40
    assert sum(one.created for one in answers) == 40 - written


def test_workers_of_all_shards_are_listed_with_their_shard(front: FrontDatabase) -> None:
    for n, shard in enumerate(front.shards):
        shard.connect().execute("select queues.register_worker(%s)", [f"w{n}"])
    connection = front.connect()

    assert [worker.worker_id for worker in Engine(connection).run(workers.worker_status())] == [
        "w0",
        "w1",
        "w2",
        "w3",
    ]
    named = connection.execute("select worker_id, shard from queues.worker_status order by 1").fetchall()
    assert named == [("w0", "s00"), ("w1", "s01"), ("w2", "s02"), ("w3", "s03")]


def test_an_access_token_enqueues_on_every_shard_until_it_is_revoked(front: FrontDatabase) -> None:
    engine = Engine(front.connect())
    secret = bytes(range(32))
    token_id = engine.run(access.create_token("shop", ["enqueue"], secret))
    batch = [f'{{"type": "billing.charge", "idempotency_key": "k{n}"}}' for n in range(20)]
    made = engine.run(enqueue.enqueue_json(f"[{','.join(batch)}]", secret))

    assert {one.task_id.bytes[11] for one in made} == {0, 1, 2, 3}
    assert engine.run(access.revoke_token(token_id))
    for n in range(8):
        with pytest.raises(NotAllowed):
            engine.run(
                enqueue.enqueue_json(f'[{{"type": "billing.charge", "idempotency_key": "n{n}"}}]', secret)
            )


def test_the_actor_of_a_server_is_recorded_on_the_shard(front: FrontDatabase) -> None:
    connection = front.connect(autocommit=False)
    task_id = Engine(connection).run(enqueue.enqueue(NewTask("billing.charge")))
    connection.execute("select set_config('holdfast.acting_for', 'token:ops', true)")
    Engine(connection).run(tasks.cancel(task_id))
    connection.rollback()

    events = Engine(front.connect()).run(tasks.task_events(task_id))
    assert "token:ops" in str(events[-1].actor)


def test_the_commands_show_all_shards(front: FrontDatabase) -> None:
    for shard in front.shards:
        Engine(shard.connect()).run(enqueue.enqueue(NewTask("billing.charge")))
    status = run_holdfast("shards", "status", env=front.environment)
    page = json.loads(run_holdfast("list", "--json", env=front.environment).stdout)["tasks"]
    shown = run_holdfast("show", page[0]["task_id"], env=front.environment).stdout
    assert sorted(task["shard"] for task in page) == ["s00", "s01", "s02", "s03"]
    assert f"shard {page[0]['shard']}" in " ".join(shown.split())
    listed = run_holdfast("list", env=front.environment)

    assert (status.returncode, status.stdout.count("reached")) == (0, 4)
    assert listed.stdout.count("billing.charge") == 4
    assert run_holdfast("shards", "check", env=front.environment).stdout == "4 shards, all alike\n"


def test_a_login_is_granted_its_roles_on_the_front_and_on_every_shard(front: FrontDatabase) -> None:
    admin = front.connect_alone()
    admin.execute("create role newcomer login")
    env = {
        "DATABASE_URL": front.dsn,
        "HOLDFAST_SHARDS": " ".join(f"{n}={u}" for n, u in front.settings.items()),
    }
    try:
        printed = run_holdfast("grant", "newcomer", "--as", "client", "--print", env=env)
        assert printed.stdout.startswith(
            "-- front\ngrant holdfast_client to newcomer;\ncreate user mapping for"
        ), printed.stderr
        assert run_holdfast("grant", "newcomer", "--as", "client", env=env).returncode == 0
        with psycopg.connect(make_conninfo(front.dsn, user="newcomer"), autocommit=True) as login:
            login.execute("select queues.enqueue('billing.charge')")
            assert login.execute("select count(*) from queues.task_status").fetchone() == (1,)
        again = run_holdfast("grant", "newcomer", "--as", "client", "--print", env=env)
        assert again.stdout == "-- nothing to do for newcomer\n"
        assert run_holdfast("revoke", "newcomer", "--as", "client", env=env).returncode == 0
        assert admin.execute("select pg_has_role('newcomer', 'holdfast_client', 'member')").fetchone() == (
            False,
        )
    finally:
        admin.execute("drop owned by newcomer; drop role newcomer")
