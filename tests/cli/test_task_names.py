"""Commands that are given a task: by its id, the end of the id, or its key."""

from uuid import UUID, uuid4

import pytest

from holdfast._engine import Engine, enqueue
from holdfast._engine.enqueue import NewTask
from support.commands import Holdfast, answer


@pytest.mark.parametrize("command", [("show",), ("why",), ("cancel",), ("runs", "show")])
def test_a_task_is_found_by_its_key_and_by_the_end_of_its_id(
    engine: Engine, holdfast: Holdfast, command: tuple[str, ...]
) -> None:
    for key, name in (("order 7", None), ("order-8", "order-8")):
        task_id = engine.run(enqueue.enqueue(NewTask("shop.pay", idempotency_key=key)))
        done = holdfast(*command, name or str(task_id)[-8:], "--json")
        assert done.exit_code == 0, done.stderr


KEYS = ["d41d8cd98f00b204e9800998ecf8427e", "d9428888-122b-11e1-b85c-61cd3cbb3210"]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("command", [("show",), ("why",), ("cancel",), ("runs", "show")])
def test_a_key_that_could_be_an_id_is_found(
    engine: Engine, holdfast: Holdfast, command: tuple[str, ...], key: str
) -> None:
    task_id = engine.run(enqueue.enqueue(NewTask("shop.pay", idempotency_key=key)))
    assert holdfast(*command, key, "--json").exit_code == 0
    assert str(task_id) in holdfast("show", key).stdout


def test_an_id_means_its_task_also_if_another_one_has_it_as_its_key(
    engine: Engine, holdfast: Holdfast
) -> None:
    first = engine.run(enqueue.enqueue(NewTask("shop.pay")))
    engine.run(enqueue.enqueue(NewTask("shop.ship", idempotency_key=str(first))))
    assert answer(holdfast("show", str(first), "--json"))["type"] == "shop.pay"


@pytest.mark.parametrize("digits", [8, 12, 17])
def test_the_end_of_an_id_may_be_long_and_in_capitals(
    engine: Engine, holdfast: Holdfast, digits: int
) -> None:
    task_id = engine.run(enqueue.enqueue(NewTask("shop.pay")))
    assert answer(holdfast("show", str(task_id)[-digits:].upper(), "--json"))["task_id"] == str(task_id)


@pytest.mark.parametrize("keyed", [False, True])
def test_tasks_of_batches_differ_in_their_last_eight_digits(
    engine: Engine, holdfast: Holdfast, keyed: bool
) -> None:
    tasks = [NewTask("shop.pay", {}, idempotency_key=f"k{n}" if keyed else None) for n in range(3)]

    def batch() -> list[str]:
        engine.connection.execute("delete from queues.task_key")
        return [str(one.task_id) for one in engine.run(enqueue.enqueue_many(tasks))]

    batches = [batch() for _ in range(40)]
    ids = [task_id for batch in batches for task_id in batch]
    assert ids == sorted(ids)
    assert len({task_id[-8:] for task_id in ids}) == len(ids)
    assert answer(holdfast("show", ids[0][-8:], "--json"))["task_id"] == ids[0]


def test_an_action_on_an_unknown_id_says_what_there_is(holdfast: Holdfast, task_id: UUID) -> None:
    unknown = str(uuid4())
    for command in ("cancel", "retry", "delete", "restore"):
        refused = holdfast(command, unknown)
        assert refused.exit_code == 4
        assert f"there is no task {unknown}" in refused.stderr
        assert "`holdfast list` shows which there are" in refused.stderr
    both = holdfast("cancel", unknown, str(task_id))
    assert (both.exit_code, f"{task_id}  cancelled" in both.stdout) == (4, True)


def test_a_task_can_come_after_one_that_is_named_by_its_key(engine: Engine, holdfast: Holdfast) -> None:
    engine.run(enqueue.enqueue(NewTask("shop.pay", idempotency_key="order-7")))
    later = holdfast("enqueue", "shop.ship", "--after", "order-7").stdout.strip()
    assert answer(holdfast("show", later, "--json"))["status"] == "suspended"


def test_a_name_that_nobody_has_is_not_found_with_4_and_says_what_can_be_given(holdfast: Holdfast) -> None:
    missing = holdfast("why", "hallo")
    assert (missing.exit_code, missing.stdout) == (4, "")
    assert "no task has the id or the key 'hallo'" in missing.stderr
    assert "holdfast list --search" in missing.stderr


def test_a_key_of_several_types_lists_them_and_changes_nothing(engine: Engine, holdfast: Holdfast) -> None:
    ids = [
        str(engine.run(enqueue.enqueue(NewTask(type_, idempotency_key="k"))))
        for type_ in ("shop.a", "shop.b")
    ]
    refused = holdfast("cancel", "k")
    assert refused.exit_code == 2
    assert all(one in refused.stderr for one in (*ids, "shop.a", "shop.b", "Give the id of one"))
    assert answer(holdfast("list", "--status", "pending", "--json"))["tasks"]
