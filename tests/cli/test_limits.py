from datetime import timedelta

import pytest
import typer

from holdfast._engine import Engine, leases, limits, workers
from holdfast.cli.limits import rate
from support.commands import Holdfast, answer
from support.database import Database


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("100/min", (100, timedelta(minutes=1))),
        ("5/s", (5, timedelta(seconds=1))),
        ("20 / 30s", (20, timedelta(seconds=30))),
        ("1/hour", (1, timedelta(hours=1))),
    ],
)
def test_a_rate_is_so_many_in_a_period(given: str, expected: tuple[int, timedelta]) -> None:
    assert rate(given) == expected


@pytest.mark.parametrize("given", ["100", "min", "/min", "100/", "100/fortnight", "-1/s", "1.5/s"])
def test_what_is_no_rate_is_refused_with_examples(given: str) -> None:
    with pytest.raises(typer.BadParameter, match="100/min"):
        rate(given)


def test_a_limit_is_set_listed_and_removed(engine: Engine, holdfast: Holdfast) -> None:
    assert holdfast("limits", "list").stderr == "No limits found.\n"
    done = holdfast(
        "limits", "set", "queue", "mail", "--running", "5", "--rate", "100/min", "--reason", "relay"
    )
    assert done.stdout == "Limit of queue mail set.\n"
    (limit,) = engine.run(limits.limit_status())
    assert (limit.max_running, limit.rate, limit.per, limit.reason) == (5, 100, timedelta(minutes=1), "relay")
    assert "relay" in holdfast("limits", "list").stdout
    (listed,) = answer(holdfast("limits", "list", "--json"))["limits"]
    assert (listed["name"], listed["running"], listed["may_start"]) == ("mail", 0, 100)
    assert holdfast("limits", "remove", "queue", "mail").stdout == "Limit of queue mail removed.\n"
    assert holdfast("limits", "remove", "queue", "mail").stdout == "The queue mail has no limit.\n"


def test_a_limit_that_limits_nothing_is_refused(holdfast: Holdfast) -> None:
    refused = holdfast("limits", "set", "type", "mail.send")
    assert refused.exit_code == 2
    assert "needs max_running, per_key or rate" in refused.stderr
    assert holdfast("limits", "set", "worker", "w1", "--running", "1").exit_code == 2


def test_a_key_is_given_when_a_task_is_enqueued(engine: Engine, holdfast: Holdfast) -> None:
    for _ in range(2):
        holdfast("enqueue", "mail.send", "{}", "--concurrency-key", "customer-7")
    assert len(engine.run(leases.claim("w1", 5, queues=["mail"]))) == 1


def test_a_reader_may_look_but_not_limit(db: Database, holdfast: Holdfast) -> None:
    reader = db.dsn_as("holdfast_reader")
    holdfast("limits", "set", "queue", "mail", "--rate", "5/s")
    assert "mail" in holdfast("limits", "list", url=reader).stdout
    assert holdfast("limits", "set", "queue", "mail", "--running", "1", url=reader).exit_code == 7


def test_a_limit_of_something_unknown_is_set_with_a_warning_that_lists_what_there_is(
    engine: Engine, holdfast: Holdfast
) -> None:
    engine.run(workers.register_types([{"type": "mail.send"}, {"type": "mail.fetch"}]))
    done = holdfast("limits", "set", "type", "mail.sent", "--running", "1")
    assert done.stdout == "Limit of type mail.sent set.\n"
    assert done.stderr == "Warning: the type mail.sent is not known. Did you mean mail.send?\n"
    unlike = holdfast("limits", "set", "type", "billing", "--running", "1")
    assert unlike.stderr == "Warning: the type billing is not known. There are: mail.fetch, mail.send.\n"
    assert holdfast("limits", "set", "type", "mail.send", "--running", "1").stderr == ""
    assert "There is no queue yet." in holdfast("limits", "set", "queue", "x", "--running", "1").stderr


def test_the_column_of_running_tasks_does_not_read_as_a_limit(holdfast: Holdfast) -> None:
    holdfast("limits", "set", "queue", "mail", "--per-key", "3")
    header = holdfast("limits", "list").stdout.splitlines()[0].split()
    assert "running_now" in header
    assert "running" not in header
