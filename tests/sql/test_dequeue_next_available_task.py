"""queues.dequeue_next_available_task: claim of one, with defaults for everything."""

from support.engine import Connection, call, enqueue, finish, held, status


def test_it_claims_the_first_task_of_the_default_queue(tx: Connection) -> None:
    enqueue(tx, "other.work")
    enqueue(tx)
    first = enqueue(tx, priority=1)

    (task,) = call(tx, "queues.dequeue_next_available_task", {})

    assert (task["task_id"], task["attempt"]) == (first, 1)


def test_it_answers_the_columns_of_the_contract(tx: Connection) -> None:
    enqueue(tx)

    (task,) = call(tx, "queues.dequeue_next_available_task", {})

    assert list(task) == [
        *("task_id", "token", "type", "executor", "payload", "attempt", "max_attempts", "lease_until"),
        *("timeout", "metadata"),
    ]


def test_with_nothing_to_do_it_answers_nothing(tx: Connection) -> None:
    assert call(tx, "queues.dequeue_next_available_task", {}) == []


def test_without_a_name_the_worker_is_its_connection(tx: Connection) -> None:
    task_id = enqueue(tx)
    (task,) = call(tx, "queues.dequeue_next_available_task", {})
    worker_id = f"backend-{tx.info.backend_pid}"

    assert status(tx, task_id)["worker_id"] == worker_id
    assert finish(tx, held(task, status="succeeded"), worker_id) == ["accepted"]


def test_it_may_name_its_worker_and_its_subscription(tx: Connection) -> None:
    enqueue(tx, "media.cut")
    arguments = {"worker_id": "w9", "queues": ["x"], "type_prefixes": ["media."]}

    (task,) = call(tx, "queues.dequeue_next_available_task", arguments)

    assert status(tx, task["task_id"])["worker_id"] == "w9"
