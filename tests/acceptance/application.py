"""The application that the workers of these tests run. Every handler leaves a trace outside the database."""

import asyncio
import contextlib
import os
import resource
import signal
import threading
import time

from holdfast import App, Context
from holdfast.supervision import is_supervised

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # os.abort is part of the test; its core dump is not
_witness = os.open(os.environ["WITNESS"], os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

Receipt = dict[str, int]


app = App()


def note(ctx: Context, phase: str, label: str) -> None:
    """One write(2) to a file that is opened with O_APPEND: lines are whole, whatever happens next."""
    token = ctx._held.token  # type: ignore[attr-defined]
    line = f"{ctx.task_id} {ctx.attempt} {token} {os.getpid()} {phase} {time.monotonic():.6f} {label}\n"
    os.write(_witness, line.encode())


def receipt(ctx: Context) -> Receipt:
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
def work_in_thread(ctx: Context, label: str, seconds: list[float], padding: str = "") -> Receipt:
    del padding
    note(ctx, "started", label)
    time.sleep(at(seconds, ctx.attempt))
    note(ctx, "ended", label)
    return receipt(ctx)


@app.task("acceptance.insist")
def insist(ctx: Context, label: str, gates: list[str]) -> Receipt:
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
def leave(ctx: Context, label: str) -> None:
    note(ctx, "started", label)
    os._exit(3)


def _end_with_the_test() -> None:
    """The test holds the other end of the pipe: even kill -9 of the test closes it."""
    while os.read(0, 1):
        pass
    if is_supervised():
        os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


threading.Thread(target=_end_with_the_test, daemon=True).start()
