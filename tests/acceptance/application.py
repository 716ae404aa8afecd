"""The application that the workers of these tests run. Every handler leaves a trace outside the database."""

import asyncio
import contextlib
import os
import resource
import signal
import threading
import time
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from typing import Any
from uuid import UUID

from acceptance.twelve import FACTS, IN_THREAD, SLEEP, TRANSACTIONS, WAIT, fact_name
from holdfast import App, Context, Linear

try:
    from holdfast import SyncContext
except ImportError:  # workers of the release before run this, too
    SyncContext = Context  # type: ignore[misc, assignment]

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # os.abort is part of the test; its core dump is not
_witness = os.open(os.environ["WITNESS"], os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

Receipt = dict[str, int]


app = App()


def note(ctx: Context | SyncContext, phase: str, label: str) -> None:
    """One write(2) to a file that is opened with O_APPEND: lines are whole, whatever happens next."""
    token = ctx._held.token  # type: ignore[attr-defined]
    line = f"{ctx.task_id} {ctx.attempt} {token} {os.getpid()} {phase} {time.monotonic():.6f} {label}\n"
    os.write(_witness, line.encode())


def receipt(ctx: Context | SyncContext) -> Receipt:
    """The result names the attempt that made it, so that it can be told from that of another one."""
    return {"attempt": ctx.attempt, "token": ctx._held.token, "pid": os.getpid()}  # type: ignore[attr-defined]


def at(seconds: list[float], attempt: int) -> float:
    """How long this attempt takes; those past the end of the list are like its last one."""
    return seconds[min(attempt, len(seconds)) - 1]


@app.task("acceptance.work")
async def work(ctx: Context, label: str, seconds: list[float], padding: str = "") -> Receipt:
    del padding
    note(ctx, "started", label)
    try:
        await asyncio.sleep(at(seconds, ctx.attempt))
    except asyncio.CancelledError:
        note(ctx, "stopped", label)
        raise
    note(ctx, "ended", label)
    return receipt(ctx)


@app.task("acceptance.work_in_thread")
def work_in_thread(ctx: SyncContext, label: str, seconds: list[float], padding: str = "") -> Receipt:
    del padding
    note(ctx, "started", label)
    time.sleep(at(seconds, ctx.attempt))
    note(ctx, "ended", label)
    return receipt(ctx)


@app.task("acceptance.insist")
def insist(ctx: SyncContext, label: str, gates: list[str]) -> Receipt:
    """Each attempt waits for a file of its own, and reports whatever it was told meanwhile."""
    note(ctx, "started", label)
    is_open = False
    while not is_open:
        with contextlib.suppress(BaseException):  # it may be stopped at any step
            while not is_open:
                is_open = os.path.exists(gates[ctx.attempt - 1])  # noqa: PTH110 - as short as can be
                time.sleep(0.02)
    note(ctx, "ended", label)
    return receipt(ctx)


@app.task("acceptance.block")
async def block(ctx: Context, label: str, seconds: float) -> Receipt:
    note(ctx, "started", label)
    time.sleep(seconds)  # noqa: ASYNC251 - blocking the event loop is what is tested
    note(ctx, "ended", label)
    return receipt(ctx)


@app.task("acceptance.abort")
async def abort(ctx: Context, label: str) -> None:
    note(ctx, "started", label)
    os.abort()


@app.task("acceptance.exit")
def leave(ctx: SyncContext, label: str) -> None:
    note(ctx, "started", label)
    os._exit(3)


@app.task("acceptance.twelve", retry=Linear(step=0.05))
async def twelve(ctx: Context, label: str, halts: str = "") -> Receipt:
    """It can be halted between any two of its facts, and between an effect and its fact."""
    note(ctx, "started", label)
    for n in range(1, FACTS + 1):
        await halt(ctx, halts, f"before-{n}")
        if n == SLEEP:
            await ctx.sleep(0.2, fact_name(n))
        elif n == WAIT:
            await ctx.wait(fact_name(n), str)
        elif n in TRANSACTIONS:
            async with happens_once(ctx, fact_name(n)) as db:
                await db.execute("insert into ledger values (%s, %s)", [ctx.task_id, fact_name(n)])
                note(ctx, "effect", fact_name(n))
                await halt(ctx, halts, f"after-{n}")
        else:
            await ctx.step(act_in_thread if n in IN_THREAD else act, ctx, halts, n, key=n)
    await halt(ctx, halts, "before-end")
    note(ctx, "ended", label)
    return receipt(ctx)


async def act(ctx: Context, halts: str, n: int) -> int:
    note(ctx, "effect", fact_name(n))
    await halt(ctx, halts, f"after-{n}")
    return n


def act_in_thread(ctx: Context, halts: str, n: int) -> int:
    note(ctx, "effect", fact_name(n))
    asyncio.run(halt(ctx, halts, f"after-{n}"))
    return n


_supervision: Any = import_module(
    "holdfast._telemetry.supervision" if find_spec("holdfast._telemetry") else "holdfast.supervision"
)


def happens_once(ctx: Context, name: str) -> Any:
    """`ctx.step_transaction`, which workers of the release before know as `ctx.transaction`."""
    anything: Any = ctx
    return getattr(anything, "step_transaction", anything.transaction)(name)


async def halt(ctx: Context | SyncContext, halts: str, place: str) -> None:
    """Wait while there is a file for this place, which the test removes."""
    if _is_halted(halts, place):
        note(ctx, "halted", place)
    while _is_halted(halts, place):  # noqa: ASYNC110 - another process removes it
        await asyncio.sleep(0.02)


def _is_halted(halts: str, place: str) -> bool:
    return halts != "" and os.path.exists(f"{halts}/{place}")  # noqa: PTH110 - as short as can be


@app.task("acceptance.decide")
async def decide(ctx: Context, label: str) -> str:
    note(ctx, "started", label)
    await ctx.step(act, ctx, "", 1, key=1)
    decision = await ctx.wait("decision", str, timeout=60 * 86400)
    await ctx.step(act, ctx, "", 4, key=4)
    note(ctx, "ended", label)
    return str(decision)


@app.task("acceptance.limited")
async def limited(ctx: Context, label: str, seconds: list[float]) -> Receipt:
    """As `work`, for limits of its own."""
    return await work(ctx, label, seconds)


@app.task("acceptance.flow", retry=Linear(step=0.05))
async def flow(ctx: Context, label: str, signals: int, parts: int) -> Receipt:
    """Takes signals in the order in which they were sent, and joins children after each of them."""
    note(ctx, "started", label)
    for number in range(signals):
        heard = await ctx.wait("next", int)
        note(ctx, "heard", f"{label} {number} {heard}")
        children = [work.using(max_attempts=50).build(f"{label}.{number}.{n}", [0.01]) for n in range(parts)]
        receipts = await ctx.map(work, children)
        note(ctx, "joined", f"{label} {number} {' '.join(str(one['token']) for one in receipts)}")
    async with happens_once(ctx, "book") as db:
        await db.execute("insert into ledger values (%s, 'book')", [ctx.task_id])
    note(ctx, "ended", label)
    return receipt(ctx)


@app.task("acceptance.chain", retry=Linear(step=0.05))
async def chain(ctx: Context, label: str, left: int) -> Receipt:
    """A run that goes on with other arguments, and books each time that it begins anew."""
    note(ctx, "started", label)
    async with happens_once(ctx, "book") as db:
        await db.execute("insert into ledger values (%s, %s)", [ctx.task_id, f"{label} {left}"])
    await ctx.sleep(0.05)
    if left:
        ctx.continue_as(label=label, left=left - 1)
    note(ctx, "ended", label)
    return receipt(ctx)


@app.task("acceptance.member", retry=Linear(step=0.05))
async def member(ctx: Context, label: str, more: int = 0) -> Receipt:
    """A task of a batch, which may add others to it."""
    note(ctx, "started", label)
    if more:
        await ctx.batch.add(*[member.using(max_attempts=50).build(f"{label}.{n}") for n in range(more)])
    note(ctx, "ended", label)
    return receipt(ctx)


@app.task("acceptance.last", retry=Linear(step=0.05))
async def last(ctx: Context, label: str) -> Receipt:
    """The task after a batch."""
    note(ctx, "started", label)
    receipts = await ctx.after()
    note(ctx, "gathered", f"{label} {' '.join(str(one['token']) for one in receipts)}")
    note(ctx, "ended", label)
    return receipt(ctx)


@app.task("acceptance.bulk", batch=20, batch_wait=0.1)
async def bulk(labels: list[str]) -> list[Receipt]:
    """All at once, without a context: its lines and results name the call instead of the token."""
    call = next(_calls)
    for phase in ("started", "ended"):
        line = f"{UUID(int=0)} 0 {call} {os.getpid()} {phase} {time.monotonic():.6f}"
        os.write(_witness, "".join(f"{line} {label}\n" for label in labels).encode())
        await asyncio.sleep(0.01)
    return [{"attempt": 0, "token": call, "pid": os.getpid()} for _ in labels]


_calls = count(1)


def _end_with_the_test() -> None:
    """The test holds the other end of the pipe: even kill -9 of the test closes it."""
    while os.read(0, 1):
        pass
    if _supervision.is_supervised():
        os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


threading.Thread(target=_end_with_the_test, daemon=True).start()
