"""The executor `command`: tasks that are external programs."""

from pathlib import Path
from typing import Any, Literal

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
        postponed = [await shop.becomes(one, "scheduled") for one in (missing, unknown)]
        reasons = {line["kind"] for line in shop.lines("task_not_started")}
    error = crashed["error"]
    assert (crashed["status"], error["kind"], error["detail"]["exit_code"]) == ("failed", "exit_code", 9)
    assert (error["detail"]["stdout"], error["detail"]["stderr"]) == ("out\n", "err\n")
    assert (failed["error"]["kind"], failed["last_error"]) == ("command_failed", "no disk")
    assert reasons == {"executor_failed", "executor_not_available"}
    assert [(row["attempt"], row["error"]) for row in postponed] == [(0, None)] * 2


async def test_a_task_that_no_worker_has_a_command_for_fails_after_the_grace(shop: Workshop) -> None:
    commands = {"missing": {"types": ["work.missing"], "argv": ["no-such-program"]}}
    async with shop.working(commands=commands, handler_grace="0s"):
        kinds = [
            (await shop.ended(enqueue(shop, name)))["error"]["kind"]
            for name in ("work.missing", "work.unknown")
        ]
    assert kinds == ["executor_failed", "executor_not_available"]


async def test_the_result_of_a_command_has_the_type_that_its_handler_declares(shop: Workshop) -> None:
    @shop.task("work.counts", executor="command", retry=NoRetry())
    def counts() -> int: ...  # type: ignore[empty-body]

    @shop.task("work.names", executor="command", retry=NoRetry())
    def names() -> Literal["a", "b"]: ...  # type: ignore[empty-body]

    commands = {
        "seven": {"types": ["work."], "argv": ["sh", "-c", """echo '{"success": true, "payload": 7}'"""]}
    }
    async with shop.working(commands=commands):
        counted = await shop.ended(await counts.aenqueue())
        named = await shop.ended(await names.aenqueue())
    assert (counted["status"], counted["result"]) == ("succeeded", 7)
    assert (named["status"], named["error"]["kind"]) == ("failed", "result_not_serializable")
    assert "the result of work.names does not fit" in named["last_error"]


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
