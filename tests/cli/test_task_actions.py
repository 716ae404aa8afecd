import json
from uuid import UUID

import pytest

from holdfast._engine import Engine, enqueue, leases, tasks
from holdfast._engine.enqueue import NewTask
from support.commands import Holdfast, answer, fail, run
from support.database import Database

UNKNOWN = "01990000-0000-7000-8000-000000000000"


def status_of(engine: Engine, task_id: UUID) -> str:
    found = engine.run(tasks.task_status(task_id))
    assert found is not None
    return found.status


def test_tasks_are_cancelled_and_the_reason_is_kept(engine: Engine, holdfast: Holdfast) -> None:
    ids = [engine.run(enqueue.enqueue(NewTask("a.b"))) for _ in range(2)]
    result = holdfast("cancel", *map(str, ids), "--reason", "not needed")
    assert (result.exit_code, result.stdout) == (0, f"{ids[0]}  cancelled\n{ids[1]}  cancelled\n")
    assert engine.run(tasks.task_events(ids[0]))[-1].reason == "not needed"


def test_cancelling_again_changes_nothing_and_is_no_error(holdfast: Holdfast, task_id: UUID) -> None:
    assert holdfast("cancel", str(task_id)).exit_code == 0
    assert holdfast("cancel", str(task_id), str(task_id)).stdout == f"{task_id}  cancelled\n"


def test_a_task_that_has_ended_cannot_be_cancelled(engine: Engine, holdfast: Holdfast) -> None:
    [task_id] = fail(engine)
    refused = holdfast("cancel", str(task_id))
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "cannot be cancelled: it has already ended (failed)" in refused.stderr


def test_one_refusal_does_not_stop_the_others(engine: Engine, holdfast: Holdfast, task_id: UUID) -> None:
    result = holdfast("cancel", UNKNOWN, str(task_id), "--json")
    assert result.exit_code == 4
    missing, cancelled = json.loads(result.stdout)["tasks"]
    assert (missing["task_id"], missing["status"]) == (UNKNOWN, None)
    assert (missing["error"]["kind"], missing["error"]["sqlstate"]) == ("NotFound", "QF404")
    assert cancelled == {"task_id": str(task_id), "status": "cancelled", "error": None}


def test_nothing_is_done_if_one_of_the_tasks_does_not_exist(
    engine: Engine, holdfast: Holdfast, task_id: UUID
) -> None:
    assert holdfast("cancel", str(task_id), "nonsense").exit_code == 4
    assert status_of(engine, task_id) == "pending"


def test_a_deleted_task_is_restored_to_its_place(engine: Engine, holdfast: Holdfast, task_id: UUID) -> None:
    assert holdfast("delete", str(task_id), "--reason", "test data").stdout == f"{task_id}  deleted\n"
    assert engine.run(leases.claim("w1", queues=["billing"])) == []
    assert holdfast("restore", str(task_id)).stdout == f"{task_id}  pending\n"


def test_a_task_whose_key_was_given_away_is_not_restored(engine: Engine, holdfast: Holdfast) -> None:
    task = NewTask("a.b", idempotency_key="k")
    first = engine.run(enqueue.enqueue(task))
    engine.run(tasks.delete_task(first))
    engine.run(enqueue.enqueue(task))
    refused = holdfast("restore", str(first))
    assert refused.exit_code == 1
    assert "Delete that task first" in refused.stderr


def test_a_client_may_not_delete(db: Database, holdfast: Holdfast, task_id: UUID) -> None:
    refused = holdfast("delete", str(task_id), url=db.dsn_as("holdfast_client"))
    assert refused.exit_code == 7


def test_a_reason_is_kept_as_it_is(engine: Engine, holdfast: Holdfast, task_id: UUID) -> None:
    reason = "'; drop schema queues; -- ☃ \u202e [bold]x[/bold] $(id)"
    assert holdfast("cancel", str(task_id), "--reason", reason).exit_code == 0
    assert engine.run(tasks.task_events(task_id))[-1].reason == reason


def test_named_tasks_are_retried(engine: Engine, holdfast: Holdfast) -> None:
    [task_id] = fail(engine)
    assert answer(holdfast("retry", str(task_id), "--json")) == {
        "tasks": [{"task_id": str(task_id), "status": "pending", "error": None}]
    }
    again = holdfast("retry", str(task_id))
    assert again.exit_code == 1
    assert "cannot be retried: it is pending" in again.stderr


def test_a_filter_asks_first_and_says_how_many(engine: Engine, holdfast: Holdfast) -> None:
    ids = fail(engine, count=3)
    declined = holdfast("retry", "--queue", "billing", stdin="n\n")
    assert declined.exit_code == 1
    assert "Retry 3 tasks?" in declined.stderr
    assert {status_of(engine, task_id) for task_id in ids} == {"failed"}

    agreed = holdfast("retry", "--queue", "billing", stdin="y\n")
    assert agreed.exit_code == 0
    assert agreed.stdout.endswith("Retried 3 of 3 tasks.\n")
    assert {status_of(engine, task_id) for task_id in ids} == {"pending"}


def test_without_an_answer_nothing_is_retried(engine: Engine, holdfast: Holdfast) -> None:
    [task_id] = fail(engine)
    assert holdfast("retry", "--status", "failed", stdin="").exit_code == 1
    assert status_of(engine, task_id) == "failed"


def test_without_a_status_failed_and_dead_letter_are_meant_but_not_cancelled(
    engine: Engine, holdfast: Holdfast
) -> None:
    fail(engine)
    fail(engine, status="dead_letter")
    [cancelled] = fail(engine, status="cancelled")
    counts = answer(holdfast("retry", "--type", "billing.", "--yes", "--json"))
    assert counts == {"matched": 2, "retried": 2, "refused": []}
    assert status_of(engine, cancelled) == "cancelled"
    assert answer(holdfast("retry", "--status", "cancelled", "--since", "1h", "-y", "--json"))["retried"] == 1


def test_a_deleted_task_is_left_out(engine: Engine, holdfast: Holdfast) -> None:
    ids = fail(engine, count=2)
    engine.run(tasks.delete_task(ids[0]))
    assert holdfast("retry", "--status", "failed", "--yes").stdout == "Retried 1 of 1 task.\n"


def test_no_match_is_no_error_and_asks_nothing(holdfast: Holdfast) -> None:
    result = holdfast("retry", "--status", "failed")
    assert (result.exit_code, result.stdout) == (0, "Retried 0 of 0 tasks.\n")


def test_more_than_a_batch_and_more_than_a_page_are_retried(
    engine: Engine, holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.cli.bulk_actions.PAGE", 7)
    monkeypatch.setattr("holdfast.cli.bulk_actions.MAX_ACTED", 4)
    fail(engine, count=25)
    assert holdfast("retry", "--status", "failed", "--yes").stdout == "Retried 25 of 25 tasks.\n"


def test_a_task_that_somebody_else_retried_meanwhile_does_not_stop_the_others(
    engine: Engine, holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = fail(engine, count=3)
    monkeypatch.setattr("typer.confirm", lambda *_, **__: engine.run(tasks.retry(ids[1])))
    result = holdfast("retry", "--status", "failed", "--json")
    assert result.exit_code == 1
    counts = json.loads(result.stdout)
    assert (counts["matched"], counts["retried"]) == (3, 2)
    assert [refused["task_id"] for refused in counts["refused"]] == [str(ids[1])]


@pytest.mark.parametrize(
    "arguments", [[], ["--yes"], [UNKNOWN, "--status", "failed"], ["--status", "succeeded"]]
)
def test_names_and_filters_are_not_mixed_and_not_both_missing(
    empty_db: Database, arguments: list[str]
) -> None:
    assert run("retry", *arguments, url=empty_db.dsn).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        (["cancel", "--type", "mail."], ["cancelled"] * 3),
        (["cancel", "--status", "pending", "--search", "WELCOME"], ["cancelled"] * 3),
        (["cancel", "--where", "$.to ? (@ == 1)"], ["pending", "cancelled", "pending"]),
        (["delete", "--queue", "mail", "--where", "$.to ? (@ < 2)"], ["pending"] * 3),
        (["reschedule", "--at", "2h", "--type", "mail."], ["scheduled"] * 3),
    ],
)
def test_all_that_match_are_changed_after_a_dry_run_that_changes_nothing(
    engine: Engine, holdfast: Holdfast, arguments: list[str], left: list[str]
) -> None:
    ids = [engine.run(enqueue.enqueue(NewTask("mail.welcome", {"to": n}))) for n in range(3)]
    engine.run(enqueue.enqueue(NewTask("other.task")))
    tried = answer(holdfast(*arguments, "--dry-run", "--json"))
    assert [status_of(engine, task_id) for task_id in ids] == ["pending"] * 3
    done = answer(holdfast(*arguments, "--yes", "--reason", "tidying", "--json"))
    assert done.pop("refused") == []
    assert set(done.values()) == {tried["matched"]}
    assert [status_of(engine, task_id) for task_id in ids] == left
    assert engine.run(tasks.task_events(ids[1]))[-1].reason == "tidying"


def test_the_tasks_of_one_error_are_retried_with_one_reason(engine: Engine, holdfast: Holdfast) -> None:
    ids = fail(engine, count=3)
    fail(engine, queue="other")
    group = answer(holdfast("errors", "--type", "billing.", "--json"))["groups"][0]
    assert (group["errors"], group["title"]) == (3, "it broke")
    result = holdfast("retry", "--error", group["error_group"], "--reason", "mended", "--yes")
    assert result.stdout == "Retried 3 of 3 tasks.\n"
    assert {status_of(engine, task_id) for task_id in ids} == {"pending"}


def test_a_dry_run_says_how_many(engine: Engine, holdfast: Holdfast, task_id: UUID) -> None:
    assert holdfast("delete", "--queue", "billing", "--dry-run").stdout == "Would delete 1 task.\n"
    assert holdfast("cancel", str(task_id), "--dry-run").stdout == "Would cancel 1 task.\n"
    assert holdfast("reschedule", str(task_id), "--at", "1h").stdout == f"{task_id}  scheduled\n"
    assert holdfast("retry", str(task_id), "--dry-run").stdout == "Would retry 0 tasks.\n"


@pytest.mark.parametrize(
    "arguments", [["cancel", "--status", "failed"], ["reschedule", "--type", "a"], ["cancel"]]
)
def test_a_bulk_action_that_cannot_be_meant_is_refused(empty_db: Database, arguments: list[str]) -> None:
    assert run(*arguments, url=empty_db.dsn).exit_code == 2
