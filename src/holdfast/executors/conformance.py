"""Whether a program keeps to the protocol of commands: a few runs of it, and what each has to show."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace

from holdfast.executors.command import CommandRun, Plan
from holdfast.executors.ending import Bounds, End
from holdfast.executors.kept import Keeper, NotStarted
from holdfast.limits import size_text

LARGE = 200 * 1024
PATIENCE_SECONDS = 30.0
MOMENT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    name: str
    holds: bool
    seen: str


async def check_conformance(plan: Plan, bounds: Bounds, payload: str) -> AsyncIterator[Finding]:
    """Each finding when it is there. A program that cannot be started is the only one."""
    keeper = Keeper()
    patient = bounds if bounds.timeout is not None else replace(bounds, timeout=PATIENCE_SECONDS)
    bench = _Bench(plan, patient, keeper)
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
    except NotStarted as error:
        yield Finding("can be started", holds=False, seen=str(error))
    finally:
        await keeper.close()


class _Bench:
    def __init__(self, plan: Plan, bounds: Bounds, keeper: Keeper) -> None:
        self._plan = plan
        self._bounds = bounds
        self._keeper = keeper

    async def run(self, payload: str) -> End:
        return await self._begun().run(self._keeper, payload.encode())

    async def run_until_stopped(self) -> End:
        """It waits for the rest of a payload that never comes."""
        run = self._begun()
        running = asyncio.ensure_future(run.run(self._keeper, b'{"conformance": ', close_stdin=False))
        await asyncio.wait([running], timeout=MOMENT_SECONDS)
        run.stop("cancelled", self._bounds.grace)
        return await running

    def _begun(self) -> CommandRun:
        return CommandRun(self._plan, self._bounds, lambda _: None)


def _answers(name: str, end: End, accepted: Callable[[dict[str, object]], bool] = bool) -> Finding:
    if end.answer is None:
        return Finding(name, holds=False, seen=_shown(end))
    answer = dict(end.answer)
    said = {key: value for key, value in answer.items() if value is not None and key != "payload"}
    return Finding(name, holds=accepted(answer), seen=json.dumps(said, ensure_ascii=False))


def _leaves_nothing(end: End) -> Finding:
    left = end.detail["left_processes"]
    return Finding("leaves no process behind", holds=left == 0, seen=f"{left} processes")


def _ends_when_asked(end: End, bounds: Bounds) -> Finding:
    name = f"ends within {bounds.grace:g} s of SIGTERM"
    if end.kind != "killed_on_cancel":
        return Finding(name, holds=True, seen="it had ended before")
    was_killed = end.detail.get("signal") == "SIGKILL"
    return Finding(name, holds=not was_killed, seen="it had to be killed" if was_killed else "it did")


def _shown(end: End) -> str:
    last = str(end.detail.get("stderr", "")).strip().rpartition("\n")[2]
    return f"{end.kind}: {end.message}" + (f" · {last}" if last else "")
