"""What a child process may tell its worker: whatever it writes, only its own run suffers."""

import asyncio
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from support import hostile
from support.health import troubled
from support.neighbour import Neighbour
from support.workshop import Workshop

MEBIBYTE = 1024 * 1024
NO_STEPS: dict[str, Any] = {"steps": [], "tries": [], "waits": []}
STEP = {
    "name": "mine", "number": 1, "kind": "step", "tries": 1, "took": 0.0, "result": True, "error": None,
    "until": None, "signal_id": None, "arguments": None,
}  # fmt: skip
ENDED = {
    "status": "succeeded", "left": False, "memory": 0, "result": False, "payload": False, "error": None,
    "delay": None, "report": None,
}  # fmt: skip
STARTING = {
    "ask": 1, "name": "pack", "number": 1, "awaited": False, "leave": False, "batch": False, "keys": False,
    "payloads": False,
}  # fmt: skip


def _record(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"ask": 1, "lazy": False, "report": {**NO_STEPS, "steps": steps}, **more}


VICTIM = '"task_id":"%(task_id)s","token":%(token)s'
THEIR_STEP = '{"name":"second","number":2,"kind":"step","tries":1,"took_ms":0,"result":"forged"}'
OTHER_RUN = f'{{{VICTIM},"steps":[{THEIR_STEP}]}}'
FORGERIES: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "a run of another task in place of a result": (
        "W", _record(STEP), [f'1}}]}},{OTHER_RUN},{{"steps":[{{"name":"x","number":3,"kind":"step"'],
    ),
    "one element more than there are runs": (
        "W", _record(STEP), [f'1}}]}},{{"task_id":"{UUID(int=0)}","token":1,"steps":[{{"result":1'],
    ),
    "members of the run": ("W", _record(task_id="%(task_id)s", token=1), []),
    "members of the report": ("W", _record() | {"report": {**NO_STEPS, "task_id": "%(task_id)s"}}, []),
    "members of a step": ("W", _record({**STEP, "token": 1}), ["1"]),
    "two documents": ("W", _record(STEP), ["1 2"]),
    "no number": ("W", _record(STEP), ["NaN"]),
    "no text": ("W", _record(STEP), []),
    "a text too many": ("W", _record(), ["1"]),
    "two steps with one name": ("W", _record(STEP, STEP), ["1", "2"]),
    "a kind of step that there is not": ("W", _record({**STEP, "kind": 'step","task_id":"x'}), ["1"]),
    "a time that there is not": ("W", _record({**STEP, "until": 1e300}), ["1"]),
    "a question without a number": ("?", {"ask": 0, "signals": []}, []),
    "signals that are no texts": ("?", {"ask": 1, "signals": [1]}, []),
    "signals that are no list": ("?", {"ask": 1, "signals": "paid"}, []),
    "too many signals": ("?", {"ask": 1, "signals": ["paid"] * 1001}, []),
    "a signal with too long a name": ("?", {"ask": 1, "signals": ["x" * 301]}, []),
    "signals of another task": ("?", {"ask": 1, "signals": [], "task_id": "%(task_id)s"}, []),
    "a status that is more than one": ("A", {**ENDED, "status": 'failed","token":1,"x":"'}, []),
    "a result that is more than one": ("A", {**ENDED, "result": True}, [f'1}},{OTHER_RUN},{{"result":1']),
    "arguments that are more than one": (
        "A", {**ENDED, "status": "continue", "payload": True}, [f'{{}}}},{OTHER_RUN},{{"payload":{{}}'],
    ),
    "arguments of a step that are more than one": (
        "W", _record({**STEP, "arguments": f'1}}]}},{OTHER_RUN},{{"steps":[{{"result":1'}), ["1"],
    ),
    "long arguments of a step": ("W", _record({**STEP, "arguments": f'"{3000 * "x"}"'}), ["1"]),
    "an endless delay": ("A", {**ENDED, "status": "retry", "delay": 1e308}, []),
    "children of another task": ("S", {**STARTING, "task_id": "%(task_id)s", "token": 1}, ["[]"]),
    "keys that are no texts": ("S", {**STARTING, "keys": True}, ["[]", "[1]"]),
    "progress that is no number": ("P", {"done": "1", "total": None, "note": None}, []),
    "much progress": ("P", {"done": 1, "total": None, "note": "x" * 10_000}, []),
}  # fmt: skip


def _about(held: dict[str, Any], value: Any) -> Any:
    """The value with the task and the token of another run in its texts."""
    if isinstance(value, dict):
        return {name: _about(held, member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_about(held, member) for member in value]
    return value % held if isinstance(value, str) and "%(" in value else value


async def test_a_forged_message_ends_the_run_that_wrote_it_and_nothing_else(
    works: Workshop, tmp_path: Path
) -> None:
    async with works.working(process_pool=2, worker_concurrency=3):
        victim = await hostile.asleep.aenqueue(str(tmp_path / "asleep"))
        await works.sees((tmp_path / "asleep").exists)
        held = await works.until("select task_id::text, token from queues.lease")
        runs = {
            name: await hostile.forge.aenqueue([_about(held, list(message))])
            for name, message in FORGERIES.items()
        }
        ends = {name: await works.ended(run) for name, run in runs.items()}
        assert {name: end["error"]["kind"] for name, end in ends.items()} == dict.fromkeys(
            FORGERIES, "envelope_malformed"
        )
        assert "descriptor 3" in ends["two documents"]["last_error"]
        assert "envelope_malformed" in await troubled(works, runs["two documents"].task_id)
        assert works.conn.execute("select from queues.step").fetchall() == []
        assert (await works.becomes(victim, "running"))["attempt"] == 1
        assert (await works.ended(await hostile.add.aenqueue(1)))["result"] == 2
        await victim.acancel()


REPEATED = {
    "a step": [("W", _record(STEP), ["1"]), ("W", _record(STEP, ask=2), ["2"])],
    "the step that starts tasks": [
        ("W", _record({**STEP, "name": "pack"}), ["1"]),
        ("S", {**STARTING, "ask": 2}, ['[{"type": "work.here", "payload": {}}]']),
    ],
    "a signal that nobody sent": [("W", _record({**STEP, "kind": "signal", "signal_id": 1}), ["1"])],
    "tasks that are no JSON": [("S", STARTING, ["[],[]"])],
    "tasks that are nested too deeply": [("S", STARTING, ["[" * 100_000 + "]" * 100_000])],
    "payloads that are no JSON": [
        ("S", {**STARTING, "payloads": True}, ['[{"type": "work.here"}]', "{", "␀"])
    ],
}


@pytest.mark.parametrize("name", REPEATED)
async def test_what_the_database_refuses_stops_no_other_run(works: Workshop, name: str) -> None:
    async with works.working(process_pool=2, worker_concurrency=3):
        forger = await hostile.forge.aenqueue(REPEATED[name])
        await works.becomes(forger, "running")
        for _ in range(3):
            assert (await works.ended(await hostile.large_steps.aenqueue(2, 10)))["result"] == 20
        await forger.acancel()
        await works.ended(forger)
    assert works.lines("database_unavailable") == []


async def test_what_is_no_message_ends_the_run_that_wrote_it(works: Workshop) -> None:
    async with works.working(process_pool=1, worker_concurrency=1):
        for data in (b"hello, worker", b"P\x7f\xff\xff\xff\0\0\0\0", b"W\0\0\0\1\xff\xff\xff\xff{"):
            row = await works.ended(await hostile.write_to_worker.aenqueue(data.hex()))
            assert (row["status"], row["error"]["kind"]) == ("failed", "envelope_malformed"), data
        assert (await works.ended(await hostile.add.aenqueue(1)))["result"] == 2


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


FLOODS: dict[str, tuple[str, dict[str, Any], list[str], int]] = {
    "progress": ("P", {"done": 1, "total": None, "note": None}, [], 1),
    "questions": ("?", {"ask": 1, "signals": []}, [], 1),
    "questions about many signals": ("?", {"ask": 1, "signals": [f"{n:>200}" for n in range(1000)]}, [], 1),
    "steps": ("W", _record(STEP), ["[],"], 340_000),
    "steps that are refused": ("W", _record({**STEP, "name": "x" * 600}), ["[],"], 340_000),
    "tasks": ("S", STARTING, ["[],"], 2_700_000),
}


@pytest.mark.full
@pytest.mark.parametrize("name", FLOODS)
async def test_a_child_process_that_writes_without_end_waits_and_its_neighbours_do_not(
    works: Workshop, name: str
) -> None:
    async with works.working(process_pool=1, worker_concurrency=4):
        await works.ended(await hostile.here.aenqueue())
        before = most = _resident()
        flood = await hostile.flood.aenqueue(*FLOODS[name])
        await works.becomes(flood, "running")
        neighbour = Neighbour(works, "work.here")
        while len(neighbour.waits) < 20:
            await neighbour.wait_for_one()
            most = max(most, _resident())
            await asyncio.sleep(0.1)
        neighbour.close()
        seen = f"{neighbour}; memory grew by {(most - before) / MEBIBYTE:.0f} MiB"
        sys.stdout.write(f"{name}: {seen}\n")
        neighbour.assert_undisturbed()
        assert most - before < 160 * MEBIBYTE, seen
        assert (await works.becomes(flood, "running"))["attempt"] == 1
        await flood.acancel()
        await works.ended(flood)


async def test_the_log_and_health_name_the_task_that_writes_too_much_to_its_worker(works: Workshop) -> None:
    async with works.working(process_pool=1, worker_concurrency=2, heartbeat="0.5s"):
        flood = await hostile.flood.aenqueue(*FLOODS["progress"])
        line = await works.logged("run_throttled", task_id=str(flood.task_id))
        assert line["type"] == "work.flood"
        assert "run_throttled" in await troubled(works, flood.task_id)
        await flood.acancel()
        await works.ended(flood)


async def test_large_steps_and_results_of_a_child_process_arrive(works: Workshop) -> None:
    async with works.working(process_pool=1, worker_concurrency=2):
        many = await works.ended(await hostile.large_steps.aenqueue(12, 1_000_000))
        assert (many["status"], many["result"]) == ("succeeded", 12_000_000)
        assert (await works.ended(await hostile.large_result.aenqueue(1_000_000)))[
            "result"
        ] == "x" * 1_000_000
        too_large = (await works.ended(await hostile.large_result.aenqueue(1_100_000)))["result"]
        assert too_large["holdfast"] == "not stored"
        assert "1100002 bytes long, and 1048576 are allowed" in too_large["reason"]
        children = await works.ended(await hostile.large_map.aenqueue(20, 200_000))
        assert children["result"] == ["x"] * 20
        refused = await works.ended(await hostile.large_map.aenqueue(100, 200_000))
        assert "a child process cannot send this to its worker" in refused["last_error"]
        assert "at most 8192 + 8388608 are allowed" in refused["last_error"]


async def test_a_child_process_reads_the_signals_that_it_waits_for_up_to_a_limit(works: Workshop) -> None:
    run, too_many = await hostile.wait_for_all.aenqueue(1000), await hostile.wait_for_all.aenqueue(1001)
    await too_many.asignal("signal 1000", 0)
    for n in (999, 0, 500):
        await run.asignal(f"signal {n}", n)
    async with works.working(process_pool=1, worker_concurrency=2):
        await works.becomes(run, "suspended")
        taken = works.conn.execute(
            "select name from queues.step where kind = 'm' order by signal_id"
        ).fetchall()
        assert [name for (name,) in taken] == ["signal 999", "signal 0", "signal 500"]
        await run.acancel()
        ended = await works.ended(too_many)
        assert "waits for at most 1000 signals at once, not 1001" in ended["last_error"]
