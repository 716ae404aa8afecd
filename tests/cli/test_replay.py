"""holdfast replay: again, compared, in this terminal, or rolled back."""

import json
import time
from collections.abc import Iterator
from typing import NoReturn
from uuid import UUID

import pytest
import structlog

from holdfast import App
from holdfast.cli.replay import first_difference
from support.commands import Holdfast, answer
from support.database import Database
from support.worker_thread import working

APPLICATION = """
from holdfast import App, Context
app = App()

@app.task("default.add")
async def add(ctx: Context, a: int, b: int) -> dict[str, int]:
    return {"sum": a + b, "attempt": ctx.attempt}

@app.task("default.divide")
def divide(a: int, b: int) -> float:
    return a / b
"""

FUNCTION = """
create table public.fact (n integer);
create schema billing;
create function billing.close_month(payload jsonb) returns jsonb language plpgsql security definer
set search_path = pg_catalog, pg_temp as $$
begin
  insert into public.fact values (1), (2);
  perform queues.enqueue('billing.mail', '{"to": "ada"}');
  return '{"success": true, "payload": {"closed": true}}';
end $$;
revoke all on function billing.close_month(jsonb) from public;
grant usage on schema billing to holdfast_caller;
grant execute on function billing.close_month(jsonb) to holdfast_caller;
"""


@pytest.fixture
def quiet() -> Iterator[None]:
    """A worker of this process does not log into what a command prints."""

    def drop(*_: object) -> NoReturn:
        raise structlog.DropEvent

    structlog.configure(processors=[drop])
    yield
    structlog.reset_defaults()


@pytest.fixture
def app(db: Database) -> App:
    app = App(db.dsn)

    @app.task("default.square")
    def square(n: int) -> dict[str, int]:
        return {"square": n * n}

    @app.task("default.time")
    def time_of_day() -> dict[str, object]:
        return {"at": [time.time_ns()], "fixed": 1}

    return app


def test_a_replay_is_enqueued_and_linked(holdfast: Holdfast, app: App) -> None:
    first = app.tasks["default.square"].enqueue(3)
    replayed = answer(holdfast("replay", str(first.task_id), "--reason", "to see", "--json"))
    shown = answer(holdfast("show", replayed["replay_id"], "--json"))
    assert shown["metadata"] == {"replay_of": str(first.task_id), "replay_reason": "to see"}
    assert shown["spec_hash"] == answer(holdfast("show", str(first.task_id), "--json"))["spec_hash"]
    assert holdfast("replay", "00000000-0000-0000-0000-000000000000").exit_code == 4
    assert holdfast("replay").exit_code == 2


def test_verify_passes_what_is_deterministic_and_finds_what_is_not(
    holdfast: Holdfast, app: App, db: Database, quiet: None
) -> None:
    square, clock = app.tasks["default.square"].enqueue(3), app.tasks["default.time"].enqueue()
    refused = holdfast("replay", str(square.task_id), "--verify")
    assert (refused.exit_code, "no result to compare with" in refused.stderr) == (1, True)
    with working(app, db.dsn, worker_queues="default", poll_interval="100ms"):
        square.result(60)
        clock.result(60)
        passed = holdfast("replay", str(square.task_id), "--verify")
        found = holdfast("replay", str(clock.task_id), "--verify", "--json")
        many = holdfast(
            "replay", "--many", "--status", "succeeded", "--type", "default.", "--verify", "--yes"
        )
        shown = holdfast("show", str(square.task_id), "--provenance", "--json")
    assert (passed.exit_code, "same" in passed.stdout) == (0, True)
    assert found.exit_code == 1
    told = json.loads(found.stdout)
    assert (told["verdict"], told["difference"].partition(":")[0]) == ("different", "$.at[0]")
    assert many.exit_code == 1
    assert "Replayed 4 tasks; 2 with a different result." in many.stdout
    (ran_with,) = answer(shown)["provenance"]
    assert ran_with["environment"].keys() >= {"python", "platform", "hostname", "holdfast"}


@pytest.mark.parametrize(
    ("old", "new", "difference"),
    [
        ({"a": 1}, {"a": 2}, "$.a: 1 in the original, 2 in the replay"),
        ({"a": 1}, {"a": 1, "b": 2}, "$.b is only in the replay"),
        ({"a": [1, {"b": 2}]}, {"a": [1, {}]}, "$.a[1].b is only in the original"),
        ([1], [1, 2], "$ has 1 elements in the original, 2 in the replay"),
        (1, "1", '$: 1 in the original, "1" in the replay'),
    ],
)
def test_the_first_difference_is_shown(old: object, new: object, difference: str) -> None:
    assert first_difference(old, new) == difference


def test_a_dry_run_shows_what_a_function_would_do_and_keeps_nothing(holdfast: Holdfast, db: Database) -> None:
    conn = db.connect()
    conn.execute(FUNCTION)
    task_id = _enqueue(
        db, "billing.close", '{"task_type": "db_function", "db_function": "billing.close_month"}'
    )
    told = answer(holdfast("replay", str(task_id), "--dry-run", "--json"))
    assert told["envelope"] == {"success": True, "payload": {"closed": True}}
    assert [(task["type"], task["payload"]) for task in told["enqueued"]] == [("billing.mail", {"to": "ada"})]
    assert {"table_name": "public.fact", "inserted": 2, "updated": 0, "deleted": 0} in told["recorded"]
    assert conn.execute(
        "select count(*), (select count(*) from public.fact) from queues.task"
    ).fetchone() == (1, 0)
    plain = _enqueue(db, "billing.other", "{}")
    assert holdfast("replay", str(plain), "--dry-run").exit_code == 2


def _enqueue(db: Database, task_type: str, payload: str) -> UUID:
    row = db.connect().execute("select queues.enqueue(%s, %s::jsonb)", [task_type, payload]).fetchone()
    assert row
    return UUID(str(row[0]))
