from uuid import UUID

from holdfast._engine import Engine, leases, queues
from support.commands import Holdfast, answer
from support.database import Database


def test_queues_show_what_waits_and_what_is_paused(engine: Engine, holdfast: Holdfast, task_id: UUID) -> None:
    engine.run(queues.pause("mail", "provider is down"))
    [billing, mail] = answer(holdfast("queues", "--json"))["queues"]
    assert (billing["queue"], billing["due"], billing["paused_at"]) == ("billing", 1, None)
    assert (mail["queue"], mail["due"], mail["pause_reason"]) == ("mail", 0, "provider is down")
    shown = holdfast("queues").stdout
    assert shown.splitlines()[0].split()[:3] == ["queue", "due", "scheduled"]
    assert "provider is down" in shown


def test_no_queue_is_no_error(holdfast: Holdfast) -> None:
    assert answer(holdfast("queues", "--json")) == {"queues": []}
    assert holdfast("queues").stderr == "No queues found.\n"


def test_a_queue_is_paused_and_resumed(engine: Engine, holdfast: Holdfast, task_id: UUID) -> None:
    assert holdfast("pause", "billing", "--reason", "moving").stdout == "Queue billing is paused.\n"
    assert engine.run(leases.claim("w1", queues=["billing"])) == []
    assert holdfast("pause", "billing").stdout == "Queue billing was already paused.\n"
    assert holdfast("resume", "billing").stdout == "Queue billing is running.\n"
    assert len(engine.run(leases.claim("w1", queues=["billing"]))) == 1
    assert answer(holdfast("resume", "billing", "--json")) == {
        "queue": "billing",
        "paused": False,
        "changed": False,
    }


def test_a_queue_without_a_name_is_bad_usage(holdfast: Holdfast) -> None:
    for command in ("pause", "resume"):
        refused = holdfast(command, "")
        assert refused.exit_code == 2
        assert "queue must not be empty" in refused.stderr


def test_a_reader_may_look_but_not_pause(db: Database, holdfast: Holdfast) -> None:
    reader = db.dsn_as("holdfast_reader")
    assert holdfast("queues", url=reader).exit_code == 0
    assert holdfast("pause", "billing", url=reader).exit_code == 7


def test_a_queue_that_does_not_exist_is_paused_with_a_warning(holdfast: Holdfast, task_id: UUID) -> None:
    done = holdfast("pause", "printers")
    assert done.stdout == "Queue printers is paused.\n"
    assert done.stderr == "Warning: the queue printers is not known. There are: billing.\n"
    assert "Did you mean billing?" in holdfast("pause", "biling").stderr


def test_a_queue_that_does_not_exist_is_not_said_to_run(holdfast: Holdfast, task_id: UUID) -> None:
    del task_id
    done = holdfast("resume", "biling")
    assert (done.stdout, "Did you mean billing?" in done.stderr) == ("", True)
