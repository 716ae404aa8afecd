"""Namespaces: two applications do not notice each other, whatever names they use; logins of one share all."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest

from holdfast._install.postgres.embedded_server import EmbeddedServer
from support.clock import Clock
from support.database import Database, cloned_database
from support.engine import (
    Connection,
    act,
    answer,
    call,
    change_setting,
    claim,
    claim_one,
    do_chores,
    end,
    enqueue,
    enqueue_many,
    explain,
    rows,
    value,
)
from support.outbox import claim_events, deliveries, emit, ids, outbox_status, settle, subscribe
from support.schedules import add, at, decide, declare, due, element, run
from support.sessions import in_background, wait_until_blocked

LOGINS = ("alice", "bob")
CLIENTS = {"alice": "holdfast_client", "bob": "holdfast_client", "token:shop": "holdfast_client"}
HASH = bytes(32)


@pytest.fixture(scope="module")
def logins(server: EmbeddedServer, template: str) -> None:
    del template  # which creates our roles
    with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
        for login, role in CLIENTS.items():
            admin.execute(f'create role "{login}" login in role {role}'.encode())


@pytest.fixture
def house(server: EmbeddedServer, template: str, logins: None) -> Iterator[Database]:
    with cloned_database(server, template) as database:
        yield database


@pytest.fixture
def alice(house: Database) -> Connection:
    return house.connect("alice")


@pytest.fixture
def bob(house: Database) -> Connection:
    """Who gives up at once where it would have to wait for somebody."""
    connection = house.connect("bob")
    connection.execute("set lock_timeout = '1ms'")
    return connection


def join(house: Database, login: str = "bob", namespace: str = "alice") -> bool:
    return bool(answer(house.connect(), "queues.add_to_namespace", {"login": login, "namespace": namespace}))


def one(conn: Connection, **task: Any) -> tuple[UUID, bool]:
    (row,) = enqueue_many(conn, [{"type": "billing.charge", "idempotency_key": "i9", **task}])
    return row["task_id"], row["created"]


def receive(conn: Connection) -> bool:
    return bool(answer(conn, "queues.receive", {"event_id": "1", "source": "urn:shop"}))


def reuse(conn: Connection) -> tuple[UUID, bool]:
    (row,) = call(conn, "queues.enqueue_unique", {"type": "a.b", '"unique"': "active"})
    return row["task_id"], row["created"]


def sqlstate_of(attempt: Any) -> str | None:
    with pytest.raises(psycopg.Error) as caught:
        attempt()
    return caught.value.sqlstate


def test_the_same_key_is_another_task_in_each_namespace(alice: Connection, bob: Connection) -> None:
    theirs, _ = one(bob)
    act(bob, "cancel", theirs)

    mine, created = one(alice)
    assert (created, mine == theirs) == (True, False)
    assert one(alice) == (mine, False)
    assert enqueue(alice, "billing.charge", idempotency_key="i9") == mine
    assert value(alice, "select status from queues.task_status") == "pending"


def test_another_payload_under_a_key_of_another_namespace_is_no_conflict(
    alice: Connection, bob: Connection
) -> None:
    one(bob, payload={"amount": 1})

    assert one(alice, payload={"amount": 2})[1]
    enqueue(alice, "billing.charge", idempotency_key="i9", payload={"amount": 2})


@pytest.mark.parametrize("way", ["batch", "one", "inbox", "reuse", "schedule", "declaration"])
def test_an_open_transaction_keeps_only_its_own_namespace_waiting(
    house: Database, bob: Connection, way: str
) -> None:
    ways: dict[str, Callable[[Connection], Any]] = {
        "batch": one,
        "one": lambda conn: enqueue(conn, "billing.charge", idempotency_key="i9"),
        "inbox": receive,
        "reuse": reuse,
        "schedule": add,
        "declaration": lambda conn: declare(conn, element()),
    }
    first, second = house.connect("alice", autocommit=False), house.connect("alice")
    ways[way](first)

    ways[way](bob)
    with in_background(lambda: ways[way](second)) as waiting:
        wait_until_blocked(house.connect(), second)
        first.commit()
        waiting.result()


def test_a_cancel_touches_nothing_that_other_namespaces_have_left_to_the_engine(
    house: Database, bob: Connection
) -> None:
    """Alice's transaction stays open; what follows from the failure of bob's task is on the same list."""
    worker, first = house.connect(), enqueue(bob, "a.first")
    (theirs,) = (row["task_id"] for row in enqueue_many(bob, [{"type": "b.next", "after": [str(first)]}]))
    end(worker, claim_one(worker, queues=["a"]), "failed")
    call(worker, "queues.wake_joined", {"task_ids": [first]})
    alice = house.connect("alice", autocommit=False)
    mine = enqueue(alice, "a.first")
    (after_mine,) = (
        row["task_id"] for row in enqueue_many(alice, [{"type": "b.next", "after": [str(mine)]}])
    )
    alice.commit()

    act(alice, "cancel", mine)

    status = "select status from queues.task_status where task_id = %s"
    assert value(bob, status, [theirs]) == "suspended"
    assert act(bob, "cancel", theirs) == "cancelled"  # it would wait for alice otherwise
    alice.commit()
    do_chores(worker)
    actor = "select actor from queues.act where task_id = %s and act = 'cancelled'"
    assert (value(worker, actor, [theirs]), value(worker, actor, [after_mine])) == ("bob", "holdfast")


def test_an_event_is_new_once_in_each_namespace(alice: Connection, bob: Connection) -> None:
    assert [receive(alice), receive(bob), receive(alice), receive(bob)] == [True, True, False, False]


def test_a_run_is_reused_within_its_namespace(alice: Connection, bob: Connection, house: Database) -> None:
    mine, _ = reuse(alice)
    theirs, created = reuse(bob)
    assert (created, theirs == mine) == (True, False)

    join(house)
    assert reuse(bob) == (mine, False)


def test_a_login_sees_and_touches_the_tasks_of_its_namespace_only(
    house: Database, alice: Connection, bob: Connection
) -> None:
    task_id, _ = one(alice)
    claimed = claim_one(house.connect(), queues=["billing"])
    end(house.connect(), claimed, "retry", error="no", run_at="2040-01-01 00:00Z")

    def seen(conn: Connection) -> list[int]:
        return [
            len(rows(conn, "select from queues.task_status")),
            len(rows(conn, "select from queues.task_error")),
            len(rows(conn, "select distinct task_id from queues.task_event")),
            len(call(conn, "queues.list_tasks", {})),
            len(call(conn, "queues.list_tasks", {"status": "retrying", "type_prefix": "billing."})),
            len(call(conn, "queues.list_tasks", {"words": "i9"})),
            len(call(conn, "queues.list_tasks", {"words": str(task_id)})),
            len(call(conn, "queues.list_tasks", {"words": "billing"})),
            len(rows(conn, "select * from queues.watch_many(array[%s::uuid])", [task_id])),
            "There is no task" not in explain(conn, task_id),
        ]

    assert seen(alice) == [1] * 10
    assert seen(bob) == [0] * 10
    for function in ("cancel", "watch", "reschedule"):
        given = {"task_id": task_id} | ({"run_at": "2041-01-01 00:00Z"} if function == "reschedule" else {})
        assert sqlstate_of(lambda f=function, g=given: call(bob, f"queues.{f}", g)) == "QF404"

    join(house)
    assert seen(bob) == [1] * 10
    assert act(bob, "cancel", task_id) == "cancelled"


def test_an_event_of_the_outbox_is_seen_by_its_namespace(
    house: Database, alice: Connection, bob: Connection
) -> None:
    call(alice, "queues.emit", {"event_type": "order.created"})
    query = "select from queues.event_status"

    assert [len(rows(conn, query)) for conn in (alice, bob)] == [1, 0]
    join(house)
    assert len(rows(bob, query)) == 1


def test_a_message_is_sent_and_seen_by_its_namespace(
    house: Database, alice: Connection, bob: Connection
) -> None:
    message = answer(alice, "comms.create_sms_message", {"recipient": "+4915112345678", "text_body": "hello"})
    call(alice, "comms.kickoff_send_sms_task", {"message_id": message})

    def sends(conn: Connection) -> list[int]:
        return [len(rows(conn, f"select from comms.{view}")) for view in ("send_sms_status", "send_event")]

    assert (sends(alice), sends(bob)) == ([1, 1], [0, 0])
    assert sqlstate_of(lambda: call(bob, "comms.kickoff_send_sms_task", {"message_id": message})) == "QF404"
    join(house)
    assert sends(bob) == [1, 1]


def test_logins_of_one_namespace_share_keys_events_and_schedules(
    house: Database, alice: Connection, bob: Connection
) -> None:
    task_id, _ = one(alice)
    receive(alice)
    add(alice, payload={"n": 1})
    assert join(house)

    assert one(bob) == (task_id, False)
    assert sqlstate_of(lambda: one(bob, payload={"n": 2})) == "QF409"
    assert not receive(bob)
    assert sqlstate_of(lambda: add(bob, payload={"n": 2})) == "QF409"
    assert value(bob, "select enqueued_by from queues.task_status where task_id = %s", [run(bob)]) == "alice"


def test_a_login_that_leaves_has_its_own_namespace_again(
    house: Database, alice: Connection, bob: Connection
) -> None:
    join(house)
    theirs, _ = one(bob)

    assert answer(house.connect(), "queues.remove_from_namespace", {"login": "bob"})
    assert not answer(house.connect(), "queues.remove_from_namespace", {"login": "bob"})
    assert one(bob)[1], "what it enqueued before stays where it was"
    assert one(alice) == (theirs, False)
    acts = rows(house.connect(), "select act, actor, reason from queues.access_event order by access_act_id")
    assert [(row["act"], row["reason"]) for row in acts] == [
        ("namespace_joined", "login bob, namespace alice"),
        ("namespace_left", "login bob, namespace alice"),
    ]


def test_schedules_of_one_name_live_side_by_side(house: Database, alice: Connection, bob: Connection) -> None:
    admin, worker = house.connect(), house.connect("holdfast_worker")
    clock = Clock(admin)
    assert add(alice, payload={"of": "alice"}) == add(bob, payload={"of": "bob"}) == "added"
    for wanted in call(worker, "queues.due_schedules", {}):
        given = {name: wanted[name] for name in ("name", "namespace", "version")}
        decide(worker, given | {"next_at": at(13)})
    clock.set(at(13))
    for wanted in call(worker, "queues.due_schedules", {}):
        given = {name: wanted[name] for name in ("name", "namespace", "version")}
        decide(worker, given | {"times": [at(13)], "next_at": at(14)})

    for login, conn in zip(LOGINS, (alice, bob), strict=True):
        (fired,) = rows(conn, "select payload, namespace, enqueued_by from queues.task_status")
        assert fired == {"payload": {"of": login}, "namespace": login, "enqueued_by": login}
        (seen,) = rows(conn, "select namespace, last_nominal_at from queues.schedule_status")
        assert seen == {"namespace": login, "last_nominal_at": at(13)}
        events = rows(conn, "select event_type, namespace from queues.schedule_event order by occurred_at")
        assert events == [{"event_type": e, "namespace": login} for e in ("added", "fired")]


def _decided(admin: Connection, worker: Connection, max_schedules: int = 10) -> list[str]:
    """One look of a leader at hourly schedules of at(13), and the namespaces that it decided on, in order."""
    before = value(admin, "select coalesce(sum(version), 0) from queues.schedule")
    wanted = due(worker, max_schedules=max_schedules)
    told = decide(
        worker,
        *(
            {"name": one["name"], "namespace": one["namespace"], "version": one["version"]}
            | ({"next_at": at(13)} if one["plan_from"] else {"times": [at(13)], "next_at": at(14)})
            for one in wanted
        ),
    )
    after = value(admin, "select coalesce(sum(version), 0) from queues.schedule")
    return [one["namespace"] for one in told] if told else [f"{after - before} planned"]


def test_namespaces_take_turns_however_many_schedules_one_has(
    house: Database, alice: Connection, bob: Connection
) -> None:
    admin, worker = house.connect(), house.connect("holdfast_worker")
    clock = Clock(admin)
    declare(alice, *(element(f"a{n}") for n in range(40)))
    add(bob, "z")

    assert [one["namespace"] for one in due(worker, max_schedules=3)] == ["alice", "bob", "alice"]
    assert _decided(admin, worker, 100) == ["41 planned"]
    clock.set(at(13))
    assert _decided(admin, worker, 1) == ["alice"]
    clock.advance(1)
    assert _decided(admin, worker, 1) == ["bob"]
    assert _decided(admin, worker, 2) == ["alice", "alice"]


def test_a_schedule_that_a_transaction_holds_delays_no_other(
    house: Database, alice: Connection, bob: Connection
) -> None:
    admin, worker = house.connect(), house.connect("holdfast_worker")
    clock = Clock(admin)
    add(alice)
    add(bob)
    _decided(admin, worker)
    clock.set(at(13))
    worker.execute("set statement_timeout = '10s'")
    with alice.transaction():
        call(alice, "queues.pause_schedule", {"name": "nightly"})
        assert _decided(admin, worker) == ["bob"]
        call(alice, "queues.resume_schedule", {"name": "nightly"})


def test_an_expensive_schedule_delays_the_others_of_its_namespace_only(
    house: Database, alice: Connection, bob: Connection
) -> None:
    admin, worker = house.connect(), house.connect("holdfast_worker")
    clock = Clock(admin)
    declare(alice, *(element(f"a{n}") for n in range(5)))
    add(bob)
    assert _decided(admin, worker) == ["6 planned"]
    clock.set(at(13))
    admin.execute(
        """create function queues.slow() returns trigger language plpgsql as $$
           begin if new.namespace = 'alice' then
             update queues.test_clock set stands_at = stands_at + interval '250 milliseconds'; end if;
           return new; end $$"""
    )
    admin.execute(
        """create trigger slow before insert on queues.schedule_firing
           for each row execute function queues.slow()"""
    )

    assert _decided(admin, worker) == ["alice", "bob"]


def test_a_namespace_has_a_bounded_number_of_schedules(
    house: Database, alice: Connection, bob: Connection
) -> None:
    admin = house.connect()
    change_setting(admin, "max_schedules", 3)
    declare(alice, element("a"), element("b"), element("c"))
    for adding in (lambda: add(alice, "d"), lambda: declare(alice, element("d"), application="other")):
        with pytest.raises(psycopg.Error, match='"alice" would have more than 3 schedules') as caught:
            adding()
        assert caught.value.sqlstate == "QF429"

    assert declare(alice, element("a"), element("b"), element("c", every=7)) == {
        "a": "unchanged",
        "b": "unchanged",
        "c": "changed",
    }
    assert add(bob, "d") == "added"


def test_an_operator_says_whose_schedule_it_means_where_several_have_the_name(
    house: Database, alice: Connection, bob: Connection
) -> None:
    operator = house.connect("holdfast_operator")
    add(alice)
    assert answer(operator, "queues.pause_schedule", {"name": "nightly"})
    add(bob)

    with pytest.raises(
        psycopg.Error, match='schedule "nightly" exists in 2 namespaces: alice, bob'
    ) as caught:
        call(operator, "queues.pause_schedule", {"name": "nightly"})
    assert caught.value.sqlstate == "QF400"
    assert answer(operator, "queues.pause_schedule", {"name": "nightly", "namespace": "bob"})
    assert answer(operator, "queues.resume_schedule", {"name": "nightly", "namespace": "alice"})
    run(operator, namespace="alice")
    call(operator, "queues.remove_schedule", {"name": "nightly", "namespace": "alice"})

    (left,) = rows(operator, "select namespace, state from queues.schedule_status")
    assert left == {"namespace": "bob", "state": "paused"}
    for conn in (alice, bob):
        assert sqlstate_of(lambda c=conn: run(c, namespace="bob" if c is alice else "alice")) == "QF404"


def test_an_application_declares_in_the_namespace_of_its_login(alice: Connection, bob: Connection) -> None:
    for conn in (alice, bob):
        assert declare(conn, element("a"), element("b")) == {"a": "added", "b": "added"}

    assert declare(alice, element("a", every="1 hour")) == {"a": "changed", "b": "orphaned"}
    assert declare(bob, element("a"), element("b")) == {"a": "unchanged", "b": "unchanged"}


def test_health_tells_of_a_schedule_that_one_application_declares_twice(
    house: Database, alice: Connection, bob: Connection
) -> None:
    query = "select subject, value, facts from queues.health() where code = 'repeated_schedule'"
    declare(alice, element())
    assert rows(house.connect(), query) == []

    declare(bob, element())
    facts = {"declared_by": "shop", "namespaces": ["alice", "bob"]}
    assert rows(house.connect(), query) == [{"subject": "nightly", "value": 2, "facts": facts}]


@pytest.mark.parametrize(
    "role", ["alice", "holdfast_process", "holdfast_worker", "holdfast_dispatcher", "holdfast_operator"]
)
def test_no_role_puts_a_login_into_a_namespace(house: Database, role: str) -> None:
    intruder = house.connect(role)

    for attempt in (
        "select queues.add_to_namespace(session_user, 'bob')",
        "select queues.remove_from_namespace('bob')",
        "insert into queues.namespace_login values (session_user, 'bob', now(), 'me')",
        "select queues.insert_tasks('[{\"type\": \"a.b\"}]', false, 'bob', 'bob')",
        "select queues.reserve_keys('{}', '{}', '{}', 'bob')",
    ):
        assert sqlstate_of(lambda a=attempt: intruder.execute(a.encode())) == "42501", attempt


def test_a_client_does_not_choose_its_namespace(house: Database, alice: Connection) -> None:
    for setting in ("holdfast.namespace", "queues.namespace", "holdfast.acting_for"):
        alice.execute(f"set {setting} = 'bob'".encode())
    alice.execute("create temporary table namespace_login (login text, namespace text)")
    alice.execute("insert into pg_temp.namespace_login values ('alice', 'bob')")
    alice.execute("set search_path = pg_temp, queues, pg_catalog")

    assert value(alice, "select queues.namespace()") == "alice"
    assert (
        value(alice, "select namespace from queues.task_status where task_id = %s", [enqueue(alice)])
        == "alice"
    )
    assert sqlstate_of(lambda: enqueue_many(alice, [{"type": "a.b", "namespace": "bob"}])) == "QF400"


def test_a_member_of_the_owner_administers_namespaces(house: Database) -> None:
    admin = house.connect()
    admin.execute("create role registrar login in role holdfast_owner")
    try:
        registrar = house.connect("registrar")
        assert answer(registrar, "queues.add_to_namespace", {"login": "bob", "namespace": "shop"})
        assert not answer(registrar, "queues.add_to_namespace", {"login": "bob", "namespace": "shop"})
        members = "select namespace, kind, name, added_by from queues.namespace_member"
        told = {"namespace": "shop", "kind": "login", "name": "bob", "added_by": "registrar"}
        assert rows(registrar, members) == [told] == rows(house.connect("bob"), members)
        assert rows(house.connect("alice"), members) == []
    finally:
        house.close()
        with psycopg.connect(house.dsn, autocommit=True) as again:
            again.execute("drop role registrar")


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"login": "nobody at all", "namespace": "shop"}, "QF404"),
        ({"login": "holdfast_client", "namespace": "shop"}, "QF404"),
        ({"login": None, "namespace": "shop"}, "QF404"),
        ({"login": "bob", "namespace": ""}, "QF400"),
        ({"login": "bob", "namespace": None}, "QF400"),
        ({"login": "bob", "namespace": "a\nb"}, "QF400"),
        ({"login": "bob", "namespace": "x" * 501}, "QF400"),
    ],
)
def test_what_makes_no_sense_is_refused(house: Database, given: dict[str, Any], code: str) -> None:
    assert sqlstate_of(lambda: answer(house.connect(), "queues.add_to_namespace", given)) == code


def test_a_login_uses_one_namespace(house: Database) -> None:
    join(house)

    assert sqlstate_of(lambda: join(house, namespace="shop")) == "QF409"


def test_a_login_with_the_name_of_a_token_is_not_in_its_namespace(house: Database) -> None:
    assert value(house.connect("token:shop"), "select queues.namespace()") == "login:token:shop"


def test_the_replay_of_a_task_belongs_to_the_namespace_of_the_original(
    house: Database, alice: Connection
) -> None:
    operator = house.connect("holdfast_operator")
    again = answer(operator, "queues.replay", {"task_id": enqueue(alice)})

    found = rows(alice, "select enqueued_by from queues.task_status where task_id = %s", [again])
    assert found == [{"enqueued_by": "holdfast_operator_login"}]


def test_a_deleted_task_frees_and_restores_the_key_of_its_namespace(
    house: Database, alice: Connection, bob: Connection
) -> None:
    operator = house.connect("holdfast_operator")
    mine, theirs = one(alice)[0], one(bob)[0]
    act(operator, "delete_task", mine)
    assert one(bob) == (theirs, False)

    act(operator, "restore_task", mine)
    assert one(alice) == (mine, False)


def create_token(conn: Connection, name: str = "shop", token_hash: bytes = HASH, **more: Any) -> None:
    given = {"name": name, "scopes": ["enqueue"], "token_hash": token_hash, **more}
    call(conn, "queues.create_token", given)


def with_token(conn: Connection, token_hash: bytes = HASH, **task: Any) -> tuple[UUID, bool]:
    batch = [{"type": "billing.charge", "idempotency_key": "i9", **task}]
    (row,) = call(conn, "queues.enqueue_for_token", {"token_hash": token_hash, "tasks": batch})
    return row["task_id"], row["created"]


def test_each_token_has_a_namespace_and_tokens_of_one_name_share_it(
    house: Database, alice: Connection
) -> None:
    admin = house.connect()
    shop, bank, rotated = (bytes([n]) * 32 for n in range(3))
    create_token(admin, "shop", shop)
    create_token(admin, "bank", bank)
    create_token(admin, "shop", rotated)
    one(alice)

    first, created = with_token(alice, shop)
    assert created
    assert with_token(alice, bank)[1]
    assert with_token(alice, rotated) == (first, False)
    (task,) = rows(admin, "select namespace, enqueued_by from queues.task where task_id = %s", [first])
    assert task == {"namespace": "token:shop", "enqueued_by": "alice"}
    assert [row["namespace"] for row in rows(alice, "select namespace from queues.task_status")] == ["alice"]


def test_a_token_enqueues_only_while_it_may(house: Database, alice: Connection) -> None:
    admin = house.connect()
    reading, ended = bytes([1]) * 32, bytes([2]) * 32
    create_token(admin, token_hash=reading, scopes=["read"])
    create_token(admin, token_hash=ended)
    admin.execute("select queues.revoke_token(max(token_id)) from queues.access_token_status")

    for token_hash in (reading, ended, HASH, None):
        assert sqlstate_of(lambda h=token_hash: with_token(alice, h)) == "QF403"
    create_token(admin)
    assert sqlstate_of(lambda: with_token(alice, executor="db_function")) == "QF403"


def test_an_operator_makes_no_token_for_the_namespace_of_another_login(house: Database) -> None:
    admin = house.connect()
    admin.execute("create role desk login in role holdfast_operator, holdfast_client")
    try:
        desk = house.connect("desk")
        join(house, "alice", "token:taken")
        refused: list[dict[str, str]] = [
            {"namespace": "bob"},
            {"name": "taken"},
            {"namespace": "token:taken"},
        ]
        for given in refused:
            assert sqlstate_of(lambda g=given: create_token(desk, **g)) == "QF403"
        create_token(desk, "mine", namespace="desk")
        create_token(admin, "theirs", bytes([1]) * 32, namespace="bob")

        namespaces = rows(admin, "select name, namespace from queues.access_token_status order by name")
        assert [tuple(row.values()) for row in namespaces] == [("mine", "desk"), ("theirs", "bob")]
    finally:
        house.close()
        with psycopg.connect(house.dsn, autocommit=True) as again:
            again.execute("drop role desk")


def test_an_event_that_fails_holds_back_no_other_namespace(
    house: Database, alice: Connection, bob: Connection
) -> None:
    admin = house.connect()
    subscription = subscribe(admin)
    emit(bob, aggregate_id="order-7", source="/shop-of-alice")
    settle(admin, subscription, claim_events(admin, subscription), "failed", error="422")
    late = emit(bob, aggregate_id="order-7")
    hers = emit(alice, aggregate_id="order-7")

    claimed = claim_events(admin, subscription)
    assert [(one["event_id"], one["namespace"]) for one in claimed] == [(hers, "alice")]
    assert deliveries(admin, late) == {"all": "waiting"}


def test_a_receiver_that_refuses_one_namespace_still_gets_the_events_of_others(
    house: Database, alice: Connection, bob: Connection
) -> None:
    admin = house.connect()
    clock = Clock(admin)
    subscription = subscribe(admin)
    for _ in range(6):
        emit(bob)
    settle(admin, subscription, claim_events(admin, subscription, max_events=5), "failed", error="422")
    assert outbox_status(admin)["breaker"] == "open"
    hers = [emit(alice), emit(alice)]
    assert set(ids(claim_events(admin, subscription))) == set(hers)

    clock.advance(60)
    hers.append(emit(alice))
    claimed = claim_events(admin, subscription, after_namespace="alice", after_aggregate="z")
    assert sorted(one["namespace"] for one in claimed if one["event_id"] not in hers) == ["bob"], "one probe"
    assert hers[-1] in ids(claimed)


def test_a_subscription_is_limited_to_namespaces(house: Database, alice: Connection, bob: Connection) -> None:
    """An event about a task is of the namespace of the task, whoever reports the task."""
    admin, worker = house.connect(), house.connect("holdfast_worker")
    subscription = subscribe(admin, namespaces=["alice"])
    emit(bob)
    hers = emit(alice)
    enqueue(bob)
    enqueue(alice)
    for task in claim(worker, max_tasks=2):
        end(worker, task)

    claimed = claim_events(admin, subscription)
    assert {(one["event_type"], one["namespace"]) for one in claimed} == {
        ("order.created", "alice"),
        ("task.succeeded", "alice"),
    }
    assert hers in ids(claimed)
    assert outbox_status(admin)["namespaces"] == ["alice"]
    seen = rows(bob, "select event_type, namespace from queues.event_status")
    assert seen == [{"event_type": "order.created", "namespace": "bob"}]


def test_a_worker_starts_tasks_only_in_the_namespace_of_a_task_that_it_holds(
    house: Database, alice: Connection, bob: Connection
) -> None:
    """As the pages on security say it: children of any type that a client may enqueue, and nothing else."""
    worker = house.connect("holdfast_worker")
    enqueue(alice)
    task = claim_one(worker)
    held = {"task_id": task["task_id"], "token": task["token"], "name": "s", "number": 0, "awaited": False}
    given: dict[str, Any] = {"worker_id": "w1", "held": held, "tasks": [{"type": "billing.charge"}]}
    call(worker, "queues.start_children", given)
    (child,) = rows(alice, "select * from queues.task_status where type = 'billing.charge'")
    assert (child["namespace"], child["enqueued_by"]) == ("alice", "alice")

    (elsewhere,) = call(worker, "queues.start_children", given | {"held": held | {"token": 0, "name": "t"}})
    assert elsewhere["verdict"] == "lost"
    powerful = given | {"held": held | {"name": "u"}, "tasks": [{"type": "a.b", "executor": "db_function"}]}
    with pytest.raises(psycopg.Error) as caught:
        call(worker, "queues.start_children", powerful)
    assert caught.value.sqlstate == "QF403"
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        enqueue(worker)
