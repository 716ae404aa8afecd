"""Checks whether a program follows the protocol of commands, by a few runs of it."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from holdfast._worker.envelope import Envelope
from holdfast.isolation.command_run import CommandPlan, CommandRun
from holdfast.isolation.run_end import RunBounds, RunEnd
from holdfast.isolation.spawner_client import ProcessNotStarted, SpawnerClient
from holdfast.resources import size_text

LARGE_BYTES = 200 * 1024
TIMEOUT_SECONDS = 30.0
STOP_AFTER_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class CommandFinding:
    """One check, whether it passed, and what was observed."""

    name: str
    holds: bool
    seen: str


async def check_command(plan: CommandPlan, bounds: RunBounds, payload: str) -> AsyncIterator[CommandFinding]:
    """Yield each finding when it is known. If the program cannot be started, that is the only one."""
    spawner = SpawnerClient()
    limited = bounds if bounds.timeout is not None else replace(bounds, timeout=TIMEOUT_SECONDS)
    try:
        first = await _run(spawner, plan, limited, payload)
        yield _returns_envelope("returns an envelope for the payload", first)
        yield _leaves_nothing(first)
        large = json.dumps({"conformance": "é\\\u2028\U0001f600" + "x" * LARGE_BYTES})
        title = f"returns an envelope for a payload of {size_text(LARGE_BYTES)}"
        yield _returns_envelope(title, await _run(spawner, plan, limited, large))
        yield _declines(await _run(spawner, plan, limited, '"conformance"'))
        yield _ends_when_asked(await _run_until_stopped(spawner, plan, limited), limited)
    except ProcessNotStarted as error:
        yield CommandFinding("can be started", holds=False, seen=str(error))
    finally:
        await spawner.close()


async def _run(
    spawner: SpawnerClient, plan: CommandPlan, bounds: RunBounds, payload: str
) -> RunEnd[Envelope]:
    return await CommandRun(plan, bounds, lambda _: None).run(spawner, payload.encode())


async def _run_until_stopped(
    spawner: SpawnerClient, plan: CommandPlan, bounds: RunBounds
) -> RunEnd[Envelope]:
    """Stop it while it waits for the rest of a payload that never comes."""
    run = CommandRun(plan, bounds, lambda _: None)
    running = asyncio.ensure_future(run.run(spawner, b'{"conformance": ', close_stdin=False))
    await asyncio.wait([running], timeout=STOP_AFTER_SECONDS)
    run.stop("cancelled", bounds.grace)
    return await running


def _returns_envelope(name: str, end: RunEnd[Envelope]) -> CommandFinding:
    return CommandFinding(name, holds=end.answer is not None, seen=_seen(end))


def _declines(end: RunEnd[Envelope]) -> CommandFinding:
    declined = end.answer is not None and not end.answer.succeeded
    return CommandFinding("declines what is not an object", holds=declined, seen=_seen(end))


def _leaves_nothing(end: RunEnd[Envelope]) -> CommandFinding:
    left = end.detail["left_processes"]
    return CommandFinding("leaves no process behind", holds=left == 0, seen=f"{left} processes")


def _ends_when_asked(end: RunEnd[Envelope], bounds: RunBounds) -> CommandFinding:
    name = f"ends within {bounds.grace:g} s of SIGTERM"
    if end.kind != "killed_on_cancel":
        return CommandFinding(name, holds=True, seen="it had ended before")
    was_killed = end.detail.get("signal") == "SIGKILL"
    return CommandFinding(name, holds=not was_killed, seen="it had to be killed" if was_killed else "it did")


def _seen(end: RunEnd[Envelope]) -> str:
    if end.answer is None:
        last_line = str(end.detail.get("stderr", "")).strip().rpartition("\n")[2]
        return f"{end.kind}: {end.message}" + (f" · {last_line}" if last_line else "")
    answer = end.answer
    members = {
        "success": answer.succeeded,
        "error": answer.error,
        "validation_failure": answer.validation_failure,
    }
    return json.dumps(
        {name: value for name, value in members.items() if value is not None}, ensure_ascii=False
    )
