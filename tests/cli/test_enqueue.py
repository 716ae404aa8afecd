import json
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest

from holdfast._engine import Engine, tasks
from holdfast._engine.tasks import TaskStatus
from holdfast._engine.workers import register_types
from support.commands import Holdfast, answer, run
from support.database import Database


def enqueued(
    engine: Engine, holdfast: Holdfast, *arguments: str, stdin: str | bytes | None = None
) -> TaskStatus:
    task = engine.run(
        tasks.task_status(UUID(answer(holdfast("enqueue", *arguments, "--json", stdin=stdin))["task_id"]))
    )
    assert task is not None
    return task


REGISTERED = {
    "type": "billing.charge",
    "queue": "money",
    "priority": 7,
    "max_attempts": 9,
    "schema": {
        "arguments": {
            "type": "object",
            "properties": {"invoice_id": {"type": "integer"}, "note": {"type": "string"}},
            "required": ["invoice_id"],
        }
    },
}


def test_what_workers_registered_for_the_type_holds(engine: Engine, holdfast: Holdfast) -> None:
    engine.run(register_types([REGISTERED]))
    task = enqueued(engine, holdfast, "billing.charge", '{"invoice_id": 7}', "--max-attempts", "2")
    assert (task.queue, task.priority, task.max_attempts) == ("money", 7, 2)


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ('{"invoiceid": 7}', "billing.charge: unknown argument 'invoiceid'; did you mean 'invoice_id'?"),
        ('{"note": "x"}', "billing.charge: argument 'invoice_id' is missing"),
    ],
)
def test_arguments_are_checked_against_the_registered_schema(
    engine: Engine, holdfast: Holdfast, payload: str, message: str
) -> None:
    engine.run(register_types([REGISTERED]))
    refused = holdfast("enqueue", "billing.charge", payload)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert message in refused.stderr
    assert engine.run(tasks.find_tasks()).task_ids == []


def test_a_type_that_is_almost_a_registered_one_is_pointed_out(engine: Engine, holdfast: Holdfast) -> None:
    engine.run(register_types([REGISTERED]))
    result = holdfast("enqueue", "biling.charge", "{}")
    assert result.exit_code == 0
    assert (
        "No worker has registered the type 'biling.charge'; did you mean 'billing.charge'?" in result.stderr
    )


def test_a_client_that_cannot_read_declarations_enqueues_all_the_same(
    db: Database, engine: Engine, holdfast: Holdfast
) -> None:
    engine.run(register_types([REGISTERED]))
    assert holdfast("enqueue", "billing.charge", "{}", url=db.dsn_as("holdfast_client")).exit_code == 0


def test_a_misspelt_value_is_refused_with_the_one_that_was_meant(holdfast: Holdfast) -> None:
    refused = holdfast("enqueue", "a.b", "--executor", "pyton")
    assert refused.exit_code == 2
    assert "Did you mean 'python'?" in " ".join(refused.stderr.replace("│", " ").split())


def test_the_id_is_all_that_is_printed(engine: Engine, holdfast: Holdfast) -> None:
    result = holdfast("enqueue", "billing.charge", '{"amount": 7}')
    task = engine.run(tasks.task_status(UUID(result.stdout.strip())))
    assert task is not None
    assert (task.type, task.queue, task.payload, task.status) == (
        "billing.charge",
        "billing",
        {"amount": 7},
        "pending",
    )
    assert result.stderr == ""


def test_every_option_reaches_the_task(engine: Engine, holdfast: Holdfast) -> None:
    options = (
        "--queue slow --priority -5 --key k1 --max-attempts 9 --timeout 90s --lease 2m --executor process"
    )
    task = enqueued(
        engine, holdfast, "billing.charge", "[1]", *options.split(), "--metadata", '{"trace": "t"}'
    )
    assert (task.queue, task.priority, task.idempotency_key, task.max_attempts) == ("slow", -5, "k1", 9)
    assert (task.timeout, task.lease) == (timedelta(seconds=90), timedelta(minutes=2))
    assert (task.executor, task.metadata, task.payload) == ("process", {"trace": "t"}, [1])


def test_a_task_comes_after_others_or_is_unique(engine: Engine, holdfast: Holdfast) -> None:
    together = ("billing.charge", "--shard-key", "album")
    one, two = (enqueued(engine, holdfast, *together).task_id for _ in range(2))
    last = enqueued(
        engine, holdfast, "billing.sum", "--after", str(one), "--after", str(two), "--when", "ended"
    )
    assert (last.status, engine.run(tasks.batch_members(last.task_id))) == ("suspended", [one, two])
    options = ("--key", "k", "--debounce", "5s", "--debounce-max", "1m")
    first, again = (enqueued(engine, holdfast, "billing.sync", *options) for _ in range(2))
    assert first.task_id != again.task_id
    unique = ("enqueue", "billing.one", "--key", "k", "--unique", "waiting")
    assert holdfast(*unique).stdout == holdfast(*unique).stdout


def test_without_a_payload_it_is_an_empty_object(engine: Engine, holdfast: Holdfast) -> None:
    assert enqueued(engine, holdfast, "billing.charge").payload == {}


def test_a_time_is_kept(engine: Engine, holdfast: Holdfast) -> None:
    task = enqueued(engine, holdfast, "a.b", "--run-at", "2030-01-31T08:00+02:00")
    assert (task.run_at.isoformat(), task.status) == ("2030-01-31T06:00:00+00:00", "scheduled")


def test_a_delay_counts_from_the_clock_of_the_engine(engine: Engine, holdfast: Holdfast) -> None:
    engine.connection.execute("update queues.test_clock set stands_at = '2031-01-01 00:00Z'")
    task = enqueued(engine, holdfast, "a.b", "--delay", "1h")
    assert task.run_at.isoformat() == "2031-01-01T01:00:00+00:00"


def test_the_payload_is_read_from_standard_input(engine: Engine, holdfast: Holdfast) -> None:
    assert enqueued(engine, holdfast, "a.b", "-", stdin='{"from": "stdin ü"}').payload == {"from": "stdin ü"}


def test_the_payload_is_read_from_a_file(engine: Engine, holdfast: Holdfast, elsewhere: Path) -> None:
    (elsewhere / "payload.json").write_bytes(b'\xef\xbb\xbf{"from": "file"}')
    assert enqueued(engine, holdfast, "a.b", "@payload.json").payload == {"from": "file"}


def test_no_digit_of_a_number_is_lost(engine: Engine, holdfast: Holdfast) -> None:
    number = "0.1000000000000000000000000000000001"
    task = enqueued(engine, holdfast, "a.b", f'{{"x": {number}}}')
    stored = "select payload ->> 'x' from queues.task_status where task_id = %s"
    assert engine.connection.execute(stored, [task.task_id]).fetchone() == (number,)


def test_the_same_key_and_payload_give_the_same_task(holdfast: Holdfast) -> None:
    first = holdfast("enqueue", "a.b", "1", "--key", "k")
    second = holdfast("enqueue", "a.b", "1", "--key", "k")
    assert (second.exit_code, second.stdout) == (0, first.stdout)
    assert "nothing new was enqueued" in second.stderr
    assert answer(holdfast("enqueue", "a.b", "1", "--key", "k", "--json"))["created"] is False


def test_the_same_key_with_another_payload_is_refused_with_1(holdfast: Holdfast) -> None:
    holdfast("enqueue", "a.b", "1", "--key", "k")
    refused = holdfast("enqueue", "a.b", "2", "--key", "k")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.startswith('holdfast: idempotency_key "k" of type a.b already belongs to task ')


HOSTILE = [
    "'; drop schema queues cascade; --",
    "$(touch pwned) `id` ${HOME} %s %(x)s $1 {0}",
    "snowman ☃ family 👨‍👩‍👧 right-to-left \u202e",
    "\x1b[31mred\x1b[0m \x07 \x9b",
    "[bold]markup[/bold] :smile:",
    "line\nbreak\ttab\r",
    "-x --json",
    "",
]


def test_hostile_text_is_stored_as_it_is(engine: Engine, holdfast: Holdfast) -> None:
    for text in HOSTILE:
        task = enqueued(engine, holdfast, "a.b", json.dumps({text: text}), "--key", text or "k")
        assert (task.payload, task.idempotency_key) == ({text: text}, text or "k")


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["a.b", '{"a": 1,\n "b": }'], "is not valid JSON: Expecting value at line 2, column 7"),
        (["a.b", "not json"], "is not valid JSON: Expecting value at line 1, column 1"),
        (["a.b", '{"x": NaN}'], "NaN is not valid JSON"),
        (["a.b", "[-Infinity]"], "-Infinity is not valid JSON"),
        (["a.b", "-"], "standard input is not valid JSON"),
        (["a.b", "@missing.json"], "missing.json cannot be read: No such file or directory"),
        (["a.b", "@."], "cannot be read: Is a directory"),
        (["a.b", '"\\u0000"'], "the text holds \\u0000, which PostgreSQL cannot store"),
        (["a.b", '"\\ud800"'], "surrogate"),
        (["a.b", nested(66)], "payload is nested deeper than 64 levels"),
        (["a.b", nested(100_000)], "nested too deeply"),
        (["a.b", '{"x": 1e400}'], "payload contains a number that Python or JavaScript cannot read"),
        (["a.b", "9" * 5000], "payload contains a number that Python or JavaScript cannot read"),
        (["a.b", '"' + "x" * 262_144 + '"'], "payload is 262146 bytes"),
        (["a b"], "malformed"),
        ([""], "type must not be empty"),
        (["x" * 201], "at most 200"),
        (["nul\0"], "NUL"),
        (["half \udcff"], "not a character"),
        (["a.b", "--queue", ""], "queue must not be empty"),
        (["a.b", "--key", ""], "idempotency_key must be between 1 and 500 bytes"),
        (["a.b", "--metadata", "[1]"], "metadata must be an object"),
        (["a.b", "--max-attempts", "0"], "max_attempts"),
        (["a.b", "--max-attempts", "99999999999999999999"], "max_attempts"),
        (["a.b", "--priority", "high"], "valid integer"),
        (["a.b", "--priority", "9999999999"], "priority"),
        (["a.b", "--executor", "shell"], "'shell' is not one of"),
        (["a.b", "--timeout", "soon"], "'soon' is not a valid duration: give seconds (30, 0.5) or"),
        (["a.b", "--timeout", "-5s"], "is not a valid duration"),
        (["a.b", "--timeout", "0"], "timeout"),
        (["a.b", "--lease", "90d"], "lease"),
        (["a.b", "--run-at", "tomorrow"], "'tomorrow' is not a valid time; expected 2030-01-31T08:00"),
        (["a.b", "--run-at", "2030-02-30"], "is not a valid time"),
        (["a.b", "--run-at", "0001-01-01T00:00Z"], "run_at"),
        (["a.b", "--run-at", "9999-12-31T23:59Z"], "run_at"),
        (["a.b", "--delay", "2000000d"], "run_at"),
        (["a.b", "--delay", "90000000d"], "is not a time between 1970 and a hundred years from now"),
        (["a.b", "--delay", "1s", "--run-at", "2030-01-01"], "give --run-at or --delay, not both"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bad_input_is_refused_with_2_and_a_message_and_nothing_is_enqueued(
    empty_db: Database, arguments: list[str], complaint: str
) -> None:
    refused = run("enqueue", *arguments, url=empty_db.dsn)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert complaint in refused.stderr
    assert Engine(empty_db.connect()).run(tasks.list_tasks()) == []


def test_standard_input_that_is_not_utf_8_is_refused(holdfast: Holdfast) -> None:
    refused = holdfast("enqueue", "a.b", "-", stdin=b'"\xff"')
    assert refused.exit_code == 2
    assert "standard input is not UTF-8: byte 1 is 0xff" in refused.stderr


def test_an_executor_that_acts_for_the_database_needs_a_role(db: Database, holdfast: Holdfast) -> None:
    client = db.dsn_as("holdfast_client")
    assert holdfast("enqueue", "a.b", url=client).exit_code == 0
    refused = holdfast("enqueue", "a.b", "--executor", "email", url=client)
    assert refused.exit_code == 7
    assert "members of holdfast_process only" in refused.stderr


def test_a_login_without_a_role_is_refused_with_7(db: Database, holdfast: Holdfast) -> None:
    refused = holdfast("enqueue", "a.b", url=db.dsn_as("holdfast_reader"))
    assert refused.exit_code == 7
    assert "run holdfast grant" in refused.stderr
