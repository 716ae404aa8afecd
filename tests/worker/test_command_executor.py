"""The executor `command`: tasks that are external programs."""

from pathlib import Path
from typing import Any

from holdfast import NoRetry
from support.documents import ROOT
from support.workshop import Workshop

EXAMPLE = str(ROOT / "examples/task_executor.py")
VARIABLES = "$HOLDFAST_TASK_TYPE $HOLDFAST_ATTEMPT $HOLDFAST_MAX_ATTEMPTS"
ECHO = f"""printf '{{"success": true, "payload": "%s %s %s"}}' {VARIABLES}"""
SHELL = {"types": ["work."], "argv": ["sh", "-c", ECHO]}


def enqueue(shop: Workshop, task_type: str, payload: str = "{}", **options: Any) -> Any:
    row = shop.conn.execute(
        "select queues.enqueue(%s, %s::jsonb, executor => 'command', max_attempts => %s)",
        [task_type, payload, options.get("max_attempts", 3)],
    ).fetchone()
    assert row
    return row[0]


async def test_a_command_runs_the_tasks_of_its_types(shop: Workshop) -> None:
    commands = {
        "any": SHELL,
        "executor": {"types": ["work.math.v1"], "argv": ["python", "-I", EXAMPLE]},
    }
    async with shop.working(commands=commands):
        best = enqueue(shop, "work.math.v1", '{"task": "add", "arguments": {"numbers": [1, 2, 39]}}')
        assert (await shop.ended(best))["result"] == 42
        declined = await shop.ended(enqueue(shop, "work.math.v1", '{"task": "divide"}'))
        assert (declined["status"], declined["error"]["kind"]) == ("failed", "validation_failure")
        assert '"task" must be one of add, shout' in declined["last_error"]
        assert declined["error"]["detail"]["stderr"] == "reading the payload\n"
        told = await shop.ended(enqueue(shop, "work.other", max_attempts=7))
        assert told["result"] == "work.other 1 7"


async def test_how_a_command_ended_is_kept(shop: Workshop) -> None:
    @shop.task("work.crash", executor="command", retry=NoRetry())
    def crash() -> None: ...

    @shop.task("work.fail", executor="command", retry=NoRetry())
    def fail() -> None: ...

    commands = {
        "crash": {"types": ["work.crash"], "argv": ["sh", "-c", "echo out; echo err >&2; exit 9"]},
        "fail": {
            "types": ["work.fail"],
            "argv": ["sh", "-c", """echo '{"success": false, "error": "no disk"}'"""],
        },
        "missing": {"types": ["work.missing"], "argv": ["no-such-program"]},
    }
    async with shop.working(commands=commands):
        crashed = await shop.ended(await crash.aenqueue())
        failed = await shop.ended(await fail.aenqueue())
        missing, unknown = enqueue(shop, "work.missing"), enqueue(shop, "work.unknown")
        await shop.becomes(missing, "retrying")
        await shop.becomes(unknown, "retrying")
        (not_found,), (nobody,) = await shop.errors(missing), await shop.errors(unknown)
    error = crashed["error"]
    assert (crashed["status"], error["kind"], error["detail"]["exit_code"]) == ("failed", "exit_code", 9)
    assert (error["detail"]["stdout"], error["detail"]["stderr"]) == ("out\n", "err\n")
    assert (failed["error"]["kind"], failed["last_error"]) == ("command_failed", "no disk")
    assert (not_found["kind"], nobody["kind"]) == ("executor_failed", "executor_not_available")


async def test_a_cancelled_command_is_ended(shop: Workshop, tmp_path: Path) -> None:
    script = f"echo $$ > {tmp_path}/pid; exec sleep 600"
    async with shop.working(
        heartbeat="100ms", commands={"sleep": {"types": ["work."], "argv": ["sh", "-c", script]}}
    ):
        task = enqueue(shop, "work.sleep")
        await shop.sees((tmp_path / "pid").exists)
        shop.conn.execute("select queues.cancel(%s)", [task])
        error = await shop.until("select * from queues.task_error where task_id = %s", task)
        assert (error["kind"], error["detail"]["signal"]) == ("killed_on_cancel", "SIGTERM")


async def test_a_command_is_ended_by_the_deadline_of_its_task(shop: Workshop) -> None:
    @shop.task("work.sleep", executor="command")
    def sleep() -> None: ...

    commands = {"sleep": {"types": ["work."], "argv": ["sleep", "600"]}}
    async with shop.working(commands=commands):
        ended = await shop.ended(await sleep.using(deadline=0.5).aenqueue())
    assert (ended["status"], ended["error"]["kind"]) == ("failed", "deadline_passed")
