"""A message whose task ended without a word of its worker: a task of its own calls the error-handler."""

from typing import Any
from uuid import UUID

import pytest

from support.clock import Clock
from support.engine import Connection, Row, act, claim_one, counts, end, enqueue, finish, held, rows, sweep

MESSAGE = {"task_type": "email", "error_handler": "app.failed", "n": 7}


def _ask(tx: Connection, payload: Any = MESSAGE, **more: Any) -> UUID:
    return enqueue(tx, "mail.send", payload=payload, **{"max_attempts": 1, **more})


def _told(tx: Connection) -> list[Row]:
    return rows(tx, "select * from queues.task_status where executor = 'db_function'")


def test_a_lease_that_ended_after_the_last_attempt(tx: Connection, clock: Clock) -> None:
    task_id = _ask(tx, priority=3, metadata={"trace": "x"})
    claim_one(tx, queues=["mail"])
    clock.advance(60)

    assert sweep(tx) == {"recovered": 0, "dead": 1}

    (told,) = _told(tx)
    assert told["payload"] == {
        "task_type": "db_function",
        "db_function": "app.failed",
        "original_payload": MESSAGE,
        "error": {
            "kind": "outcome_unknown",
            "message": "its worker was silent, and there are no attempts left",
            "permanent": False,
            "outcome_unknown": True,
            "task_id": str(task_id),
        },
    }
    assert (told["status"], told["run_at"], told["type"]) == ("pending", clock.now, "mail.send")
    assert (told["queue"], told["priority"], told["metadata"]) == ("mail", 3, {"trace": "x"})
    assert claim_one(tx, queues=["mail"])["task_id"] == told["task_id"]


def test_a_retry_after_the_last_attempt(tx: Connection) -> None:
    _ask(tx)
    end(tx, claim_one(tx, queues=["mail"]), "retry")

    (told,) = _told(tx)
    assert told["payload"]["error"]["kind"] == "outcome_unknown"


def test_a_last_attempt_that_sent_nothing_is_told_with_its_cause(tx: Connection) -> None:
    task_id = _ask(tx)
    error = {
        "kind": "provider_not_configured",
        "message": "HOLDFAST_RESEND_API_KEY is not set",
        "sent": False,
    }
    finish(tx, held(claim_one(tx, queues=["mail"]), status="retry", error=error))

    (told,) = _told(tx)
    assert told["payload"]["error"] == {
        "kind": "provider_not_configured",
        "message": "HOLDFAST_RESEND_API_KEY is not set",
        "permanent": False,
        "outcome_unknown": False,
        "task_id": str(task_id),
    }


def test_of_a_batch_only_those_that_are_meant(tx: Connection) -> None:
    ids = [_ask(tx), _ask(tx, max_attempts=2), _ask(tx, {"task_type": "email"}), enqueue(tx, "mail.other")]
    tasks = [claim_one(tx, queues=["mail"]) for _ in ids]

    finish(tx, held(*tasks, status="retry"))

    (told,) = _told(tx)
    assert told["payload"]["error"]["task_id"] == str(ids[0])


@pytest.mark.parametrize("running", [True, False])
def test_a_cancelled_task(tx: Connection, running: bool) -> None:
    task_id = _ask(tx)
    if running:
        claim_one(tx, queues=["mail"])

    act(tx, "cancel", task_id, reason="wrong person")

    (told,) = _told(tx)
    error = told["payload"]["error"]
    assert (error["kind"], error["permanent"], error["outcome_unknown"]) == ("cancelled", True, running)
    assert error["message"].endswith(": wrong person")


@pytest.mark.parametrize("status", ["succeeded", "failed", "cancelled"])
def test_what_a_worker_has_ended_is_not_told_again(tx: Connection, status: str) -> None:
    _ask(tx)
    end(tx, claim_one(tx, queues=["mail"]), status)

    assert _told(tx) == []


@pytest.mark.parametrize(
    "payload",
    [
        {"task_type": "email"},
        {"task_type": "sms", "error_handler": None},
        {"task_type": "sms", "error_handler": {"a": 1}},
        {"task_type": "db_function", "error_handler": "app.failed"},
        {"task_type": "python", "error_handler": "app.failed"},
        {"error_handler": "app.failed"},
    ],
)
def test_a_payload_that_names_nobody_to_tell_or_had_no_authority_to(tx: Connection, payload: Any) -> None:
    _ask(tx, payload)
    claimed = claim_one(tx, queues=["mail"])
    before = counts(tx)["task"]

    end(tx, claimed, "retry")

    assert counts(tx)["task"] == before


def test_a_payload_of_the_greatest_size_is_told_too(tx: Connection, clock: Clock) -> None:
    _ask(tx, {**MESSAGE, "more": "x" * (262144 - 100)})
    claim_one(tx, queues=["mail"])
    clock.advance(60)

    assert sweep(tx) == {"recovered": 0, "dead": 1}
    assert len(_told(tx)) == 1
