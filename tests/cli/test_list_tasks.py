import shlex
from datetime import timedelta
from uuid import UUID

import pytest

from holdfast._engine import Engine, enqueue, health, leases, tasks, workers
from holdfast._engine.enqueue import NewTask
from holdfast._engine.tasks import STATUSES
from holdfast.cli import tasks as cli_tasks
from support.commands import Holdfast, answer, fail, run
from support.database import Database
from support.leases import ended


def listed(holdfast: Holdfast, *arguments: str) -> list[UUID]:
    return [UUID(task["task_id"]) for task in answer(holdfast("list", *arguments, "--json"))["tasks"]]


def test_tasks_are_listed_newest_first(engine: Engine, holdfast: Holdfast) -> None:
    ids = [engine.run(enqueue.enqueue(NewTask("a.b"))) for _ in range(3)]
    assert listed(holdfast) == ids[::-1]
    rows = holdfast("list").stdout.splitlines()
    assert rows[0].split() == ["task_id", "status", "attempt", "run_at", "queue", "type"]
    assert [row.split()[0] for row in rows[1:]] == [str(task_id) for task_id in ids[::-1]]


def test_filters_are_combined(engine: Engine, holdfast: Holdfast) -> None:
    [failed] = fail(engine)
    fail(engine, queue="mail")
    engine.run(enqueue.enqueue(NewTask("billing.charge")))
    engine.run(enqueue.enqueue(NewTask("billing_old.charge")))
    assert listed(holdfast, "--status", "failed", "--queue", "billing", "--type", "billing.") == [failed]
    assert len(listed(holdfast, "--type", "billing.")) == 2


def test_since_takes_a_time_or_a_duration_on_the_clock_of_the_engine(
    engine: Engine, holdfast: Holdfast, task_id: UUID
) -> None:
    later = engine.run(health.clock()) + timedelta(hours=3)
    engine.connection.execute("update queues.test_clock set stands_at = %s", [later])
    new = engine.run(enqueue.enqueue(NewTask("a.b")))
    assert listed(holdfast, "--since", "2h") == [new]
    assert listed(holdfast, "--since", "1d") == [new, task_id]
    assert listed(holdfast, "--since", (later - timedelta(seconds=1)).isoformat()) == [new]


def test_each_page_says_how_to_get_the_next(engine: Engine, holdfast: Holdfast) -> None:
    ids = [
        engine.run(enqueue.enqueue(NewTask("a.b", queue="it's a queue".replace(" ", "-")))) for _ in range(5)
    ][::-1]
    page = holdfast("list", "--queue", "it's-a-queue", "--limit", "2", "--since", "1h")
    seen = [page]
    while page.stderr:
        command = shlex.split(page.stderr.partition("Next page: ")[2])
        assert command.pop(0) == "holdfast"
        page = holdfast(*command)
        seen.append(page)
    rows = [row.split()[0] for page in seen for row in page.stdout.splitlines()[1:]]
    assert (len(seen), rows) == (3, [str(task_id) for task_id in ids])


def test_the_last_page_is_the_last_even_if_it_is_full(engine: Engine, holdfast: Holdfast) -> None:
    ids = [engine.run(enqueue.enqueue(NewTask("a.b"))) for _ in range(4)]
    first = answer(holdfast("list", "--limit", "2", "--json"))
    assert first["next_before"] == str(ids[2])
    second = answer(holdfast("list", "--limit", "2", "--before", first["next_before"], "--json"))
    assert ([task["task_id"] for task in second["tasks"]], second["next_before"]) == (
        [str(ids[1]), str(ids[0])],
        None,
    )


def test_nothing_found_is_an_empty_document_and_a_remark(holdfast: Holdfast) -> None:
    assert answer(holdfast("list", "--json")) == {"tasks": [], "next_before": None}
    found = holdfast("list")
    assert (found.exit_code, found.stdout, found.stderr) == (0, "", "No tasks found.\n")


def test_a_deleted_task_is_marked(engine: Engine, holdfast: Holdfast, task_id: UUID) -> None:
    engine.run(tasks.delete_task(task_id))
    assert "pending (deleted)" in holdfast("list").stdout


def test_each_task_is_one_line_whatever_its_error_holds(engine: Engine, holdfast: Holdfast) -> None:
    engine.run(enqueue.enqueue(NewTask("billing.charge")))
    [task] = engine.run(leases.claim("w1", queues=["billing"]))
    engine.run(
        leases.finish("w1", [ended(task.task_id, task.token, "failed", error="line\nbreak " + "x" * 500)])
    )
    fail(engine, queue="mail")
    rows = holdfast("list").stdout.splitlines()
    assert len(rows) == 3
    assert rows == [row.rstrip() for row in rows]


def test_a_client_sees_its_own_tasks_only(db: Database, holdfast: Holdfast, task_id: UUID) -> None:
    client = db.dsn_as("holdfast_client")
    mine = holdfast("enqueue", "a.b", url=client).stdout.strip()
    shown = answer(holdfast("list", "--json", url=client))
    assert [task["task_id"] for task in shown["tasks"]] == [mine]


@pytest.mark.parametrize("status", STATUSES)
def test_every_status_can_be_asked_for(empty_db: Database, status: str) -> None:
    assert answer(run("list", "--status", status, "--json", url=empty_db.dsn))["tasks"] == []


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--status", "done"], "'done' is not one of 'scheduled', 'suspended', 'pending'"),
        (["--limit", "0"], "--limit"),
        (["--limit", "1001"], "--limit"),
        (["--since", "tomorrow"], "'tomorrow' is neither a time such as 2030-01-31T08:00Z, 12:00 or today"),
        (["--since", "90000000d"], "the time is out of range"),
    ],
)
def test_a_bad_filter_is_refused_with_2(empty_db: Database, arguments: list[str], complaint: str) -> None:
    refused = run("list", *arguments, url=empty_db.dsn)
    assert refused.exit_code == 2
    assert complaint in refused.stderr


@pytest.mark.parametrize("since", ["yesterday", "00:00", "2h"])
def test_a_day_or_a_time_of_today_can_be_given(
    engine: Engine, holdfast: Holdfast, task_id: UUID, since: str
) -> None:
    del engine
    assert [one["task_id"] for one in answer(holdfast("list", "--since", since, "--json"))["tasks"]] == [
        str(task_id)
    ]


@pytest.fixture
def rare_and_old(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> UUID:
    """A task that is older than 50 others, of which a page examines 10."""
    task_id = engine.run(enqueue.enqueue(NewTask("rare.one")))
    engine.run(enqueue.enqueue_many([NewTask("common.work")] * 50))
    find = tasks.find_tasks
    monkeypatch.setattr(
        tasks, "find_tasks", lambda matching, before, limit: find(matching, before, limit, 10)
    )
    return task_id


@pytest.mark.parametrize("filters", [["--type", "rare."], ["--queue", "rare", "--status", "pending"]])
def test_a_rare_task_is_found_behind_many_newer_ones(
    holdfast: Holdfast, rare_and_old: UUID, filters: list[str]
) -> None:
    assert listed(holdfast, *filters) == [rare_and_old]


def test_a_search_that_takes_long_goes_on_by_itself_and_says_how_far_it_is(
    holdfast: Holdfast, rare_and_old: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_tasks, "PROGRESS_SECONDS", 0.0)
    found = holdfast("list", "--type", "rare.")
    assert str(rare_and_old) in found.stdout
    assert found.stderr.count("; searching on") == 5
    nothing = holdfast("list", "--type", "rare.two")
    assert "No tasks found." in nothing.stderr


@pytest.mark.parametrize(
    ("option", "given", "said"),
    [("--type", "typo", "the type typo is not known"), ("--queue", "biling", "Did you mean billing?")],
)
def test_an_empty_list_of_something_unknown_says_what_there_is(
    holdfast: Holdfast, task_id: UUID, option: str, given: str, said: str
) -> None:
    del task_id
    found = holdfast("list", option, given)
    assert (found.exit_code, found.stdout) == (0, "")
    assert said in found.stderr


def test_an_empty_list_of_something_known_needs_no_warning(
    engine: Engine, db: Database, holdfast: Holdfast, task_id: UUID
) -> None:
    del task_id
    engine.run(workers.register_types([{"type": "shop.pay"}]))
    assert holdfast("list", "--type", "shop.").stderr == "No tasks found.\n"
    assert "Warning" not in holdfast("list", "--queue", "billing", "--status", "running").stderr
    assert holdfast("list", "--type", "typo", url=db.dsn_as("holdfast_client")).stderr == "No tasks found.\n"


def test_tasks_of_messages_are_listed_on_request_only(engine: Engine, holdfast: Holdfast) -> None:
    ids = [engine.run(enqueue.enqueue(NewTask("a.b"))) for _ in range(3)]
    message = engine.run(enqueue.enqueue(NewTask("comms.supervise")))
    assert listed(holdfast) == ids[::-1]
    assert listed(holdfast, "--all")[0] == message
    assert listed(holdfast, "--type", "comms.") == [message]
    page = answer(holdfast("list", "--limit", "2", "--json"))
    assert [UUID(one["task_id"]) for one in page["tasks"]] == ids[:0:-1]
    assert listed(holdfast, "--before", page["next_before"]) == [ids[0]]
