"""Executor db_function: the function's effects and the outcome of its task are one transaction."""

from typing import Any

import psycopg
import pytest

from holdfast import NoRetry
from support.business import ask, entries, make_application, make_function
from support.workshop import Workshop

WRITES = "insert into app.ledger values (payload ->> 'entry');"
FINE = """return jsonb_build_object('success', true, 'payload', payload -> 'entry');"""


@pytest.fixture(autouse=True)
def application(shop: Workshop) -> None:
    make_application(shop.conn)


def call(shop: Workshop, function: str = "app.run", **more: Any) -> Any:
    options = {name: more.pop(name) for name in ("max_attempts", "timeout", "lease") if name in more}
    return ask(shop.conn, {"task_type": "db_function", "db_function": function, **more}, **options)


async def test_it_is_called_with_the_whole_payload_and_its_payload_is_the_result(shop: Workshop) -> None:
    make_function(shop.conn, "run", "return jsonb_build_object('success', true, 'payload', payload);")
    async with shop.working():
        row = await shop.ended(call(shop, extra=[1, {"a": None}], big=12345678901234567890.5))

    assert row["status"] == "succeeded"
    assert row["result"] == row["payload"]


async def test_what_it_wrote_and_the_outcome_are_one_transaction(shop: Workshop) -> None:
    make_function(shop.conn, "run", "insert into app.ledger values (pg_current_xact_id()::text);" + FINE)
    async with shop.working() as worker:
        await shop.ended(call(shop, entry="a"))
        await shop.sees(lambda: worker.metrics.finished["succeeded"] == 1)
        assert not worker._parts.jobs.held

    ended = shop.conn.execute("select xmin::text from queues.outcome").fetchone()
    assert ended == (entries(shop.conn)[0],)


async def test_digits_of_a_result_are_kept(shop: Workshop) -> None:
    make_function(shop.conn, "run", """return '{"success": true, "payload": 0.10000000000000000001}';""")
    async with shop.working():
        task = call(shop)
        await shop.ended(task)

    kept = shop.conn.execute("select result::text from queues.outcome").fetchone()
    assert kept == ("0.10000000000000000001",)


async def test_empty_texts_mean_that_there_is_none(shop: Workshop) -> None:
    make_function(
        shop.conn, "run", """return '{"success": true, "error": "", "validation_failure_message": null}';"""
    )
    async with shop.working():
        row = await shop.ended(call(shop))

    assert (row["status"], row["result"]) == ("succeeded", None)


async def test_a_validation_failure_is_final_and_what_was_written_stays(shop: Workshop) -> None:
    make_function(
        shop.conn,
        "run",
        WRITES + """return '{"success": false, "validation_failure_message": "order 7 is closed"}';""",
    )
    async with shop.working():
        task = call(shop, entry="refusal")
        row = await shop.ended(task)
        (error,) = await shop.errors(task)

    assert (row["status"], row["attempt"]) == ("failed", 1)
    assert (error["kind"], error["message"]) == ("validation_failure", "app.run: order 7 is closed")
    assert entries(shop.conn) == ["refusal"]


async def test_a_result_of_another_type_than_declared_fails_and_what_was_written_is_not_kept(
    shop: Workshop,
) -> None:
    @shop.task("work.run", executor="db_function", retry=NoRetry())
    def declared(db_function: str, entry: str) -> int: ...  # type: ignore[empty-body]

    make_function(shop.conn, "run", WRITES + """return '{"success": true, "payload": "many"}';""")
    async with shop.working():
        task = call(shop, entry="x")
        row = await shop.ended(task)
        (error,) = await shop.errors(task)

    assert (row["status"], error["kind"]) == ("failed", "result_not_serializable")
    assert entries(shop.conn) == []


async def test_an_operational_error_is_retried_and_what_was_written_is_not_kept(shop: Workshop) -> None:
    make_function(
        shop.conn, "run", WRITES + """return '{"success": false, "error": "the printer is out"}';"""
    )
    async with shop.working():
        task = call(shop, entry="x", max_attempts=1)
        row = await shop.ended(task)
        (error,) = await shop.errors(task)

    assert row["status"] == "dead_letter"
    assert (error["kind"], error["message"]) == ("function_failed", "app.run: the printer is out")
    assert entries(shop.conn) == []


async def test_it_is_tried_again_until_it_succeeds_and_writes_once(shop: Workshop) -> None:
    shop.conn.execute("create sequence app.tries; alter sequence app.tries owner to app_owner")
    make_function(
        shop.conn,
        "run",
        WRITES
        + """if nextval('app.tries') < 2 then raise exception 'not yet'; end if;
             return jsonb_build_object('success', true);""",
    )
    async with shop.working():
        task = call(shop, entry="once")
        row = await shop.ended(task)
        (error,) = await shop.errors(task)

    assert (row["status"], row["attempt"]) == ("succeeded", 2)
    assert error["message"] == "app.run: not yet"
    assert error["detail"]["sqlstate"] == "P0001"
    assert "app.run" in error["detail"]["context"]
    assert entries(shop.conn) == ["once"]


NO_ENVELOPES = [
    *(None, "null", "[]", "7", '"fine"', "{}", '{"sucess": true}'),
    *('{"success": null}', '{"success": "true"}', '{"success": 1}', '{"success": false}'),
    '{"success": false, "error": ""}',
    '{"success": true, "error": 7}',
    '{"success": true, "validation_failure_message": "no"}',
    '{"success": false, "validation_failure_message": {"a": 1}}',
]


async def test_an_answer_that_is_no_envelope_is_an_operational_error_that_names_the_function(
    shop: Workshop,
) -> None:
    make_function(shop.conn, "run", WRITES + "return (payload ->> 'answer')::jsonb;")
    async with shop.working():
        tasks = [call(shop, entry="x", answer=answer, max_attempts=1) for answer in NO_ENVELOPES]
        await shop.ended(*tasks)
        errors = [await shop.errors(task) for task in tasks]

    for answer, (error,) in zip(NO_ENVELOPES, errors, strict=True):
        assert error["kind"] == "function_failed", answer
        assert error["message"].startswith("app.run: returned "), answer
    ends = shop.conn.execute("select distinct status from queues.outcome").fetchall()
    assert ends == [("dead_letter",)]
    assert entries(shop.conn) == []


async def test_a_function_that_may_not_be_run_fails_the_task_at_once(shop: Workshop) -> None:
    make_function(shop.conn, "forbidden", FINE, granted=False)
    names = ["app.missing", "app.forbidden", "pg_catalog.pg_sleep", "app.run; drop table app.ledger"]
    async with shop.working():
        for name in names:
            task = call(shop, name)
            row = await shop.ended(task)
            (error,) = await shop.errors(task)
            assert (row["status"], row["attempt"]) == ("failed", 1)
            assert error["kind"] == "function_not_found"
            assert error["message"].startswith(f'there is no function "{name}" that may be run')


async def test_what_a_function_itself_does_not_find_is_its_own_error(shop: Workshop) -> None:
    make_function(
        shop.conn,
        "run",
        "perform queues.reschedule('00000000-0000-7000-8000-000000000000', queues.clock());" + FINE,
    )
    async with shop.working():
        task = call(shop, max_attempts=1)
        await shop.ended(task)
        (error,) = await shop.errors(task)

    assert error["kind"] == "function_failed"


async def test_a_right_that_a_function_lacks_is_explained_as_its_own(shop: Workshop) -> None:
    shop.conn.execute("create table app.orders (id int)")
    make_function(shop.conn, "run", "insert into app.orders values (1);" + FINE)
    async with shop.working():
        task = call(shop, max_attempts=1)
        await shop.ended(task)
        (error,) = await shop.errors(task)

    assert error["message"].startswith("app.run: permission denied for table orders, inside app.run. ")
    assert "INSERT on table orders to the owner of app.run" in error["message"]
    assert "holdfast_client" not in error["message"]


async def test_a_payload_that_names_no_function_fails_the_task(shop: Workshop) -> None:
    async with shop.working():
        for payload in ({"task_type": "db_function"}, {"db_function": 7}, {"db_function": ""}, [1]):
            task = ask(shop.conn, payload, executor="db_function")
            row = await shop.ended(task)
            (error,) = await shop.errors(task)
            assert (row["status"], error["kind"]) == ("failed", "invalid_payload")


async def test_a_worker_with_a_powerful_login_runs_it_with_the_rights_of_a_worker(shop: Workshop) -> None:
    make_function(
        shop.conn,
        "run",
        "return jsonb_build_object('success', true, 'payload', current_setting('role'));",
    )
    async with shop.working():
        row = await shop.ended(call(shop))

    assert (row["status"], row["result"]) == ("succeeded", "holdfast_worker")


async def test_a_function_that_is_granted_to_workers_only_says_what_to_grant(shop: Workshop) -> None:
    make_function(shop.conn, "run", FINE, granted=False)
    shop.conn.execute("grant execute on function app.run to holdfast_worker")
    async with shop.working():
        task = call(shop)
        row = await shop.ended(task)
        (error,) = await shop.errors(task)

    assert (row["status"], error["kind"]) == ("failed", "function_not_found")
    assert "granted to holdfast_caller" in error["message"]


async def test_a_function_past_its_limit_is_stopped_and_retried(shop: Workshop) -> None:
    make_function(shop.conn, "run", WRITES + "perform pg_sleep(60);" + FINE)
    async with shop.working():
        task = call(shop, entry="x", timeout="100ms", max_attempts=1)
        row = await shop.ended(task)
        (error,) = await shop.errors(task)

    assert (row["status"], error["kind"]) == ("dead_letter", "timeout")
    assert entries(shop.conn) == []


async def test_a_deferred_constraint_that_breaks_at_the_commit_is_an_error_of_the_function(
    shop: Workshop,
) -> None:
    shop.conn.execute(
        "alter table app.ledger add constraint one_each unique (entry) deferrable initially deferred"
    )
    make_function(shop.conn, "run", WRITES + WRITES + FINE)
    async with shop.working():
        task = call(shop, entry="twice", max_attempts=1)
        row = await shop.ended(task)
        (error,) = await shop.errors(task)

    assert (row["status"], error["kind"]) == ("dead_letter", "function_failed")
    assert "one_each" in error["message"]


async def test_a_task_that_was_cancelled_meanwhile_leaves_no_trace(shop: Workshop) -> None:
    make_function(shop.conn, "run", WRITES + "perform pg_advisory_xact_lock(42);" + FINE)
    gate = shop.db.connect(autocommit=False)
    gate.execute("select pg_advisory_xact_lock(42)")
    async with shop.working() as worker:
        task = call(shop, entry="x")
        await shop.until("select from pg_locks where locktype = 'advisory' and not granted")
        shop.conn.execute("select queues.cancel(%s)", [task])
        gate.rollback()
        await shop.sees(lambda: not worker._parts.jobs.slots.running)

    assert entries(shop.conn) == []


async def test_a_worker_that_is_stopped_gives_it_back_and_nothing_is_written(shop: Workshop) -> None:
    make_function(shop.conn, "run", WRITES + "perform pg_advisory_xact_lock(42);" + FINE)
    gate = shop.db.connect(autocommit=False)
    gate.execute("select pg_advisory_xact_lock(42)")
    async with shop.working(grace="0s"):
        task = call(shop, entry="x")
        await shop.until("select from pg_locks where locktype = 'advisory' and not granted")
    row = await shop.becomes(task, "pending")

    assert row["attempt"] == 0
    assert entries(shop.conn) == []


async def test_many_run_at_once(shop: Workshop) -> None:
    make_function(shop.conn, "run", "perform pg_advisory_xact_lock_shared(42);" + WRITES + FINE)
    gate = shop.db.connect(autocommit=False)
    gate.execute("select pg_advisory_xact_lock(42)")
    async with shop.working(worker_concurrency=30):
        tasks = [call(shop, entry=f"{n:02}") for n in range(30)]
        await shop.until(
            """select from pg_locks where locktype = 'advisory' and not granted having count(*) = 30"""
        )
        gate.rollback()
        await shop.ended(*tasks)

    assert entries(shop.conn) == [f"{n:02}" for n in range(30)]


async def test_no_more_run_at_once_than_the_settings_say(shop: Workshop) -> None:
    make_function(shop.conn, "run", "perform pg_advisory_xact_lock_shared(42);" + WRITES + FINE)
    gate = shop.db.connect(autocommit=False)
    gate.execute("select pg_advisory_xact_lock(42)")
    waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
    async with shop.working(worker_concurrency=10, function_connections=3):
        tasks = [call(shop, entry=f"{n:02}") for n in range(8)]
        await shop.until("select where (select count(*) from queues.lease) = 8")
        await shop.until(f"select where ({waiting}) = 3")
        assert shop.conn.execute(waiting.encode()).fetchone() == (3,)
        gate.rollback()
        await shop.ended(*tasks)


async def test_a_message_does_not_wait_for_functions(shop: Workshop) -> None:
    make_function(shop.conn, "run", "perform pg_advisory_xact_lock_shared(42);" + FINE)
    make_function(shop.conn, "sent", WRITES + "return '{\"success\": true}';")
    gate = shop.db.connect(autocommit=False)
    gate.execute("select pg_advisory_xact_lock(42)")
    async with shop.working(worker_concurrency=10, function_connections=1):
        function = call(shop)
        await shop.until("select from pg_locks where locktype = 'advisory' and not granted")
        message = {"to": "ada@example.com", "subject": "Hello", "text": "Hello", "sender": "shop@example.com"}
        mail = ask(shop.conn, {"task_type": "email", **message, "success_handler": "app.sent"})
        assert (await shop.ended(mail))["status"] == "succeeded"
        gate.rollback()
        await shop.ended(function)


async def test_a_lost_connection_costs_an_attempt_and_nothing_else(shop: Workshop) -> None:
    make_function(shop.conn, "run", WRITES + "perform pg_advisory_xact_lock(42);" + FINE)
    gate = shop.db.connect(autocommit=False)
    gate.execute("select pg_advisory_xact_lock(42)")
    async with shop.working():
        task = call(shop, entry="once")
        row = await shop.until("select pid from pg_locks where locktype = 'advisory' and not granted")
        shop.conn.execute("select pg_terminate_backend(%s)", [row["pid"]])
        gate.rollback()
        row = await shop.ended(task)

    assert (row["status"], row["attempt"]) == ("succeeded", 2)
    assert entries(shop.conn) == ["once"]


async def test_the_default_isolation_of_a_database_does_not_matter(shop: Workshop) -> None:
    make_function(
        shop.conn,
        "run",
        """return jsonb_build_object('success', true,
             'payload', current_setting('transaction_isolation'));""",
    )
    shop.conn.execute(
        f"alter database {shop.db.name} set default_transaction_isolation = serializable".encode()
    )
    async with shop.working():
        row = await shop.ended(call(shop))

    assert row["result"] == "read committed"


async def test_an_error_ends_the_task_and_not_the_worker(shop: Workshop) -> None:
    make_function(shop.conn, "broken", "raise exception 'no';")
    make_function(shop.conn, "run", FINE)
    async with shop.working():
        await shop.ended(*(call(shop, "app.broken", max_attempts=1) for _ in range(20)))
        row = await shop.ended(call(shop, entry="still here"))

    assert row["result"] == "still here"


async def test_a_client_cannot_have_a_function_run_by_naming_it_in_a_payload(shop: Workshop) -> None:
    make_function(shop.conn, "run", WRITES + FINE)

    @shop.task("work.run")
    async def run(**payload: Any) -> str:
        return str(payload["entry"])

    names = ("db_function", "before_handler", "success_handler", "error_handler")
    client = shop.db.connect("holdfast_client")
    with pytest.raises(psycopg.Error) as caught:
        ask(client, {"task_type": "db_function", "db_function": "app.run", "entry": "no"})
    assert caught.value.sqlstate == "QF403"
    async with shop.working():
        row = await shop.ended(ask(client, {**dict.fromkeys(names, "app.run"), "entry": "no"}))
        cancelled = ask(
            client, {**dict.fromkeys(names, "app.run"), "entry": "no"}, run_at="2099-01-01 00:00Z"
        )
        client.execute("select queues.cancel(%s)", [cancelled])

    assert (row["status"], row["executor"]) == ("succeeded", "python")
    assert entries(shop.conn) == []


async def test_a_login_that_is_only_a_worker_runs_what_it_was_granted_and_reads_no_table(
    shop: Workshop,
) -> None:
    make_function(shop.conn, "run", WRITES + FINE)
    login = shop.db.connect("holdfast_worker")
    for table in ("app.ledger", "queues.task", "comms.email_message", "comms.send_email_task_failed"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            login.execute(f"select from {table}".encode())
    async with shop.working(shop.db.dsn_as("holdfast_worker")):
        row = await shop.ended(call(shop, entry="granted"))

    assert (row["status"], entries(shop.conn)) == ("succeeded", ["granted"])


async def test_it_acts_for_the_namespace_of_its_task_and_not_for_that_of_the_worker(shop: Workshop) -> None:
    make_function(
        shop.conn,
        "run",
        """perform queues.enqueue('work.later', queue => 'later');
           return jsonb_build_object('success', true, 'payload', to_jsonb(queues.may_read_all()));""",
    )
    with shop.db.connect("holdfast_process") as client:
        async with shop.working():
            row = await shop.ended(ask(client, {"task_type": "db_function", "db_function": "app.run"}))

    made = shop.conn.execute("select namespace from queues.task where type = 'work.later'").fetchall()
    assert made == [("holdfast_process_login",)]
    assert row["result"] is False


async def test_settings_of_a_function_do_not_last_until_the_next_call(shop: Workshop) -> None:
    make_function(
        shop.conn,
        "run",
        """return jsonb_build_object('success', true, 'payload', current_setting('work_mem') || coalesce(
             set_config('work_mem', '1MB', false), ''));""",
    )
    async with shop.working():
        rows = [await shop.ended(call(shop)) for _ in range(3)]

    usual = shop.conn.execute("show work_mem").fetchone()
    assert usual is not None
    assert [row["result"] for row in rows] == [f"{usual[0]}1MB"] * 3
