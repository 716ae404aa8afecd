"""Whether a program keeps to the protocol of commands: a few runs of it, and what each has to show."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace

from holdfast.executors.command import CommandPlan, CommandRun
from holdfast.executors.run_end import RunBounds, RunEnd
from holdfast.executors.spawner_client import ProcessNotStarted, SpawnerClient
from holdfast.resources import size_text

LARGE = 200 * 1024
PATIENCE_SECONDS = 30.0
MOMENT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class CommandFinding:
    """One thing that was looked at."""

    name: str
    holds: bool
    seen: str


async def check_conformance(
    plan: CommandPlan, bounds: RunBounds, payload: str
) -> AsyncIterator[CommandFinding]:
    """Each finding when it is there. A program that cannot be started is the only one."""
    spawner = SpawnerClient()
    patient = bounds if bounds.timeout is not None else replace(bounds, timeout=PATIENCE_SECONDS)
    bench = _Bench(plan, patient, spawner)
    try:
        answered = await bench.run(payload)
        yield _answers("answers the payload with an envelope", answered)
        yield _leaves_nothing(answered)
        large = json.dumps({"conformance": "é\\\u2028\U0001f600" + "x" * LARGE})
        title = f"reads a payload of {size_text(LARGE)} and answers with an envelope"
        yield _answers(title, await bench.run(large))
        yield _answers(
            "declines what is not an object",
            await bench.run('"conformance"'),
            lambda answer: not answer["success"],
        )
        yield _ends_when_asked(await bench.run_until_stopped(), patient)
    except ProcessNotStarted as error:
        yield CommandFinding("can be started", holds=False, seen=str(error))
    finally:
        await spawner.close()


class _Bench:
    def __init__(self, plan: CommandPlan, bounds: RunBounds, spawner: SpawnerClient) -> None:
        self._plan = plan
        self._bounds = bounds
        self._spawner = spawner

    async def run(self, payload: str) -> RunEnd:
        return await self._begun().run(self._spawner, payload.encode())

    async def run_until_stopped(self) -> RunEnd:
        """It waits for the rest of a payload that never comes."""
        run = self._begun()
        running = asyncio.ensure_future(run.run(self._spawner, b'{"conformance": ', close_stdin=False))
        await asyncio.wait([running], timeout=MOMENT_SECONDS)
        run.stop("cancelled", self._bounds.grace)
        return await running

    def _begun(self) -> CommandRun:
        return CommandRun(self._plan, self._bounds, lambda _: None)


def _answers(name: str, end: RunEnd, accepted: Callable[[dict[str, object]], bool] = bool) -> CommandFinding:
    if end.answer is None:
        return CommandFinding(name, holds=False, seen=_shown(end))
    answer = dict(end.answer)
    said = {key: value for key, value in answer.items() if value is not None and key != "payload"}
    return CommandFinding(name, holds=accepted(answer), seen=json.dumps(said, ensure_ascii=False))


def _leaves_nothing(end: RunEnd) -> CommandFinding:
    left = end.detail["left_processes"]
    return CommandFinding("leaves no process behind", holds=left == 0, seen=f"{left} processes")


def _ends_when_asked(end: RunEnd, bounds: RunBounds) -> CommandFinding:
    name = f"ends within {bounds.grace:g} s of SIGTERM"
    if end.kind != "killed_on_cancel":
        return CommandFinding(name, holds=True, seen="it had ended before")
    was_killed = end.detail.get("signal") == "SIGKILL"
    return CommandFinding(name, holds=not was_killed, seen="it had to be killed" if was_killed else "it did")


def _shown(end: RunEnd) -> str:
    last = str(end.detail.get("stderr", "")).strip().rpartition("\n")[2]
    return f"{end.kind}: {end.message}" + (f" · {last}" if last else "")
