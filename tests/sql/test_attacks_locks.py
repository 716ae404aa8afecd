"""Locks that an attacker takes or asks for: none of them keeps work waiting."""

import pytest
from psycopg.errors import InsufficientPrivilege

from support.attacks import error_of
from support.database import Database
from support.engine import Connection, call, claim, enqueue, enqueue_many, rows
from support.fleet import Fleet


def _take_every_advisory_lock(stranger: Connection) -> None:
    """All that an older release used, and any other: nothing waits for one."""
    for name in ("limit type:siege.work", "limit queue:siege", "door siege", "migrate"):
        stranger.execute("select pg_advisory_lock(hashtextextended(%s, 0))", [f"holdfast {name}"])


def test_no_function_of_ours_takes_an_advisory_lock(castle: Database) -> None:
    found = rows(
        castle.connect(),
        """select p.oid::regprocedure::text as name from pg_proc p
           where p.pronamespace in ('queues'::regnamespace, 'internal'::regnamespace, 'comms'::regnamespace)
             and p.prosrc ~ 'advisory'""",
    )
    assert found == []


def test_a_login_without_a_role_cannot_stop_or_slow_limited_work(besieged: Database) -> None:
    _take_every_advisory_lock(besieged.connect("stranger"))
    operator, client = besieged.connect("holdfast_operator"), besieged.connect("holdfast_client")
    worker = besieged.connect("holdfast_worker")
    call(operator, "queues.set_limit", {"subject": "type", "name": "siege.work", "max_running": 2})
    enqueue_many(client, [{"type": "siege.work"}] * 3 + [{"type": "siege.keyed", "concurrency_key": "k"}] * 2)

    taken = claim(worker, max_tasks=10, queues=["siege"])

    assert sorted(task["type"] for task in taken) == ["siege.keyed", "siege.work", "siege.work"]
    assert call(operator, "queues.drop_limit", {"subject": "type", "name": "siege.work"}) == [
        {"drop_limit": True}
    ]


def test_a_login_without_a_role_cannot_keep_workers_from_being_woken(besieged: Database) -> None:
    _take_every_advisory_lock(besieged.connect("stranger"))
    fleet = Fleet(besieged)
    fleet.register(queues=["siege"])

    enqueue(besieged.connect("holdfast_client"), "siege.work")

    assert fleet.heard() == ["siege"]


@pytest.mark.parametrize("login", ["stranger", "holdfast_client", "holdfast_operator", "holdfast_reader"])
def test_nobody_locks_a_row_that_work_waits_for(besieged: Database, login: str) -> None:
    attacker = besieged.connect(login)
    for table in ("limit_lock", "wakeup_throttle", "task_limit", "lane", "installation"):
        for attempt in (
            f"select from queues.{table} for update",
            f"do $$ begin lock table queues.{table} in access share mode; end $$",
        ):
            assert isinstance(error_of(attacker, attempt), InsufficientPrivilege)
