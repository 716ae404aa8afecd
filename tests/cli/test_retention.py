"""holdfast retention and prune."""

from uuid import UUID

import pytest

from holdfast._engine import Engine, tasks
from support.clock import Clock
from support.commands import Holdfast, answer, fail
from support.database import Database


def policies(holdfast: Holdfast) -> dict[tuple[str, str], float | None]:
    found = answer(holdfast("retention", "list", "--json"))["policies"]
    return {(policy["status"], policy["type_prefix"]): policy["keep"] for policy in found}


def test_the_policies_are_listed(holdfast: Holdfast) -> None:
    lines = holdfast("retention", "list").stdout.splitlines()
    assert lines[0].split() == ["status", "keep"]
    assert ["succeeded", "7d"] in [line.split() for line in lines]


def test_a_policy_is_set_and_removed(holdfast: Holdfast) -> None:
    set_ = holdfast("retention", "set", "succeeded", "36h", "--type", "billing.")
    assert set_.stdout == "Policy for succeeded of billing.… set: 1d 12h.\n"
    assert policies(holdfast)["succeeded", "billing."] == 36 * 3600
    assert "succeeded    billing.     1d 12h" in holdfast("retention", "list").stdout

    removed = holdfast("retention", "remove", "succeeded", "--type", "billing.")
    assert removed.stdout == "Policy for succeeded of billing.… removed.\n"
    assert ("succeeded", "billing.") not in policies(holdfast)
    again = answer(holdfast("retention", "remove", "succeeded", "--type", "billing.", "--json"))
    assert again == {"status": "succeeded", "type_prefix": "billing.", "removed": False}


def test_for_ever_is_a_policy(holdfast: Holdfast) -> None:
    assert answer(holdfast("retention", "set", "failed", "forever", "--json"))["keep"] is None
    assert policies(holdfast)["failed", ""] is None


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["set", "running", "1d"], "running"),
        (["set", "failed", "soon"], "soon"),
        (["set", "failed", "5s"], "at least 1 minute"),
        (["set", "history", "1d", "--type", "billing."], "history has no types"),
    ],
)
def test_what_cannot_be_meant_is_bad_usage(holdfast: Holdfast, arguments: list[str], named: str) -> None:
    refused = holdfast("retention", *arguments)
    assert refused.exit_code == 2
    assert named in refused.stderr


def test_what_is_too_old_is_counted_and_then_removed(
    engine: Engine, holdfast: Holdfast, task_id: UUID
) -> None:
    clock = Clock(engine.connection)
    engine.run(tasks.cancel(task_id))
    fail(engine, count=3)
    clock.advance(100 * 86400)

    would = answer(holdfast("prune", "--dry-run", "--json"))
    assert would["pruned"] == {
        **dict.fromkeys(["succeeded", "dead_letter", "deleted", "history", "messages", "steps"], 0),
        "failed": 3,
        "cancelled": 1,
    }
    assert len(engine.run(tasks.list_tasks())) == 4
    assert ["failed", "3"] in [line.split() for line in holdfast("prune").stdout.splitlines()]
    assert engine.run(tasks.list_tasks()) == []


def test_a_reader_may_look_but_not_prune(db: Database, holdfast: Holdfast) -> None:
    reader = db.dsn_as("holdfast_reader")
    assert holdfast("retention", "list", url=reader).exit_code == 0
    assert holdfast("retention", "set", "failed", "1d", url=reader).exit_code == 7
    assert holdfast("prune", url=reader).exit_code == 7
