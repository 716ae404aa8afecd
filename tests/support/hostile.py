"""An application whose handlers do to their process what handlers should not."""

import asyncio
import contextlib
import gc
import itertools
import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from holdfast import App, Cancel, Context, Exponential, Fail, NoRetry, Resources, Snooze, SyncContext

app = App()
LIMIT = 2.0
say = print  # only what is meant to be printed is


@app.task("work.add", executor="process")
def add(a: int, b: int = 1) -> int:
    return a + b


@app.task("work.add_async", executor="process")
async def add_async(a: int, b: int = 1) -> int:
    await asyncio.sleep(0)
    return a + b


@app.task("work.forgets", executor="process", retry=NoRetry())
async def forgets(ctx: Context) -> str:
    return "paid" if ctx.wait("ok", bool) else "refused"  # type: ignore[truthy-bool]


async def never(began: asyncio.Event) -> None:
    began.set()
    await asyncio.Event().wait()


@app.task("work.leaves_a_step", executor="process", retry=NoRetry())
async def leaves_a_step(ctx: Context) -> str:
    began = asyncio.Event()
    step = asyncio.create_task(ctx.step(never, began))
    await began.wait()
    return f"done {step.done()}"


@app.task("work.here")
async def here() -> int:
    return os.getpid()


@app.task("work.whereabouts", executor="process")
def whereabouts(ctx: SyncContext) -> dict[str, object]:
    return {
        "pid": os.getpid(),
        "task_id": str(ctx.task_id),
        "attempt": ctx.attempt,
        "session": os.getsid(0),
        "directory": str(Path.cwd()),
        "metadata": ctx.metadata,
    }


@app.task("work.identity", executor="process")
def identity() -> list[int]:
    return [os.getpid(), os.getuid()]


@app.task("work.variables", executor="process")
def variables() -> dict[str, str]:
    return dict(os.environ)


@app.task("work.enqueue", executor="process", retry=NoRetry())
def enqueue_another() -> None:
    add.enqueue(1)


@app.task("work.logs", executor="process")
def logs() -> None:
    logging.getLogger("some.library").warning("from a child")


planted: list[str] = []


@app.task("work.plant", executor="process")
def plant(text: str) -> list[str]:
    planted.append(text)
    return planted


@app.task("work.plant_fresh", executor="process", fresh=True)
def plant_fresh(text: str) -> list[str]:
    planted.append(text)
    return planted


@app.task("work.program", executor="command")
def program() -> str:
    return "the Python function ran"


@app.task("work.function", executor="db_function")
def function() -> str:
    return "the Python function ran"


@app.task("work.outcome", executor="process", max_attempts=3)
def outcome(kind: str) -> object:
    match kind:
        case "snooze":
            return Snooze(3600)
        case "cancel":
            return Cancel("no longer wanted")
        case "fail":
            return Fail("it cannot be done")
        case "object":
            return object()
    return None


@app.task("work.raise", executor="process", retry=Exponential(base=1000, cap=1000, jitter=0))
def raise_error(text: str) -> None:
    say("before", text)
    say("to stderr", file=sys.stderr)
    raise ValueError(text)


@app.task("work.progress", executor="process")
def progress(ctx: SyncContext, path: str) -> None:
    ctx.progress(1, 2, "half of it")
    while not Path(path).exists():
        time.sleep(0.01)


@app.task("work.until_stopped", executor="process")
def until_stopped(ctx: SyncContext, path: str) -> None:
    Path(path).write_text("running")
    try:
        while True:
            ctx.raise_if_stopped()
            time.sleep(0.01)
    finally:
        Path(path).write_text("cleaned up")


@app.task("work.until_cancelled", executor="process")
async def until_cancelled(path: str) -> None:
    _write(path, "running")
    try:
        await asyncio.Event().wait()
    finally:
        _write(path, "cleaned up")


def _write(path: str, text: str) -> None:
    Path(path).write_text(text)


@app.task("work.abort", executor="process", retry=NoRetry())
def abort() -> None:
    say("last words")
    os.abort()


@app.task("work.allocate", executor="process", retry=NoRetry(), memory="200M", timeout=20)
def allocate() -> None:
    held = []
    while True:
        held.append(b"x" * 1_000_000)
        time.sleep(0.001)


@app.task("work.allocate_at_once", executor="process", retry=NoRetry(), memory="200M")
def allocate_at_once() -> int:
    return len(bytearray(4 * 1024**3))


@app.task("work.loop_in_c", executor="process", retry=NoRetry(), timeout=LIMIT)
def loop_in_c(path: str = os.devnull) -> None:
    Path(path).write_text(str(os.getpid()))
    sum(itertools.repeat(1))


@app.task("work.ignore_term", executor="process", retry=NoRetry(), timeout=LIMIT)
def ignore_term() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(60)


@app.task("work.leave_grandchild", executor="process", retry=NoRetry())
def leave_grandchild(path: str, *, and_wait: bool = False, and_exit: bool = False) -> str:
    """Twice removed, in a session of its own, deaf to SIGTERM."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            Path(path).write_text(str(os.getpid()))
            time.sleep(600)
        os._exit(0)
    while not (Path(path).exists() and Path(path).read_text()):
        time.sleep(0.01)
    if and_exit:
        os._exit(3)
    if and_wait:
        time.sleep(600)
    return "done"


@app.task("work.print_much", executor="process", retry=NoRetry(), timeout=60)
def print_much(megabytes: int = 1024) -> None:
    line = "x" * 1023 + "\n"
    for _ in range(megabytes * 1024):
        sys.stdout.write(line)


@app.task("work.no_envelope", executor="process", retry=NoRetry())
def no_envelope() -> None:
    say("nothing to say")
    sys.stdout.flush()
    os._exit(0)


@app.task("work.bad_envelope", executor="process", retry=NoRetry())
def bad_envelope() -> None:
    os.write(3, b"\xff\xff\xff\xffnot a message")
    time.sleep(600)


@app.task("work.exit", executor="process", retry=NoRetry())
def exit_at_once(code: int) -> None:
    os._exit(code)


@app.task("work.nul", executor="process", retry=NoRetry())
def nul() -> None:
    say("out \0 put", "\udcff")
    raise ValueError("a \0 and a \udcff")


@app.task("work.fork", executor="process", retry=NoRetry())
def fork() -> str:
    """Comes back twice."""
    return "copy" if os.fork() == 0 else "original"


@app.task("work.spin", executor="process", retry=NoRetry(), resources=Resources(cpu=1))
def spin() -> None:
    while True:
        pass


@app.task(
    "work.many_processes", executor="process", retry=NoRetry(), resources=Resources(processes=10), timeout=20
)
def many_processes() -> None:
    while True:
        subprocess.Popen(["sleep", "600"])
        time.sleep(0.02)


@app.task(
    "work.many_files", executor="process", retry=NoRetry(), resources=Resources(files=20, file_size="1M")
)
def many_files(path: str) -> None:
    Path(path).write_bytes(b"x" * 2_000_000)


@app.task("work.transaction", executor="process", retry=NoRetry())
def transaction(ctx: SyncContext) -> None:
    ctx.transaction()


def _append(path: str) -> int:
    with Path(path).open("a") as file:
        file.write("x")
    return Path(path).stat().st_size


def _fail_once(path: str) -> None:
    if not Path(f"{path}.failed").exists():
        Path(f"{path}.failed").touch()
        raise ValueError("once")


async def _append_async(path: str) -> int:
    return _append(path)


@app.task("work.steps", executor="process", retry=Exponential(base=0.01))
def steps(ctx: SyncContext, path: str) -> list[Any]:
    """Appends to a file once, fails once, sleeps and waits for a signal."""
    first = ctx.step(_append, path)
    _fail_once(path)
    ctx.sleep(0.2)
    return [first, ctx.wait("decision", str), ctx.step(_append, path)]


@app.task("work.steps_async", executor="process", retry=Exponential(base=0.01))
async def steps_async(ctx: Context, path: str) -> list[Any]:
    first = await ctx.step(_append_async, path)
    _fail_once(path)
    _, decision = await asyncio.gather(ctx.sleep(0.2), ctx.wait("decision", str))
    return [first, decision, await ctx.step(_append, path)]


@app.task("work.double", executor="process")
def double(n: int) -> int:
    return 2 * n


@app.task("work.after", executor="process")
def after(ctx: SyncContext) -> list[int]:
    found: list[int] = ctx.after(double)
    return found


@app.task("work.children", executor="process")
def children(ctx: SyncContext) -> list[int]:
    found: list[int] = ctx.map(double, range(3))
    return found


@app.task("work.children_async", executor="process")
async def children_async(ctx: Context) -> list[int]:
    found: list[int] = await ctx.map(double, range(3))
    return found


def _hang() -> None:
    while True:
        time.sleep(0.01)


@app.task("work.step_timeout", executor="process", retry=NoRetry())
def step_timeout(ctx: SyncContext) -> None:
    ctx.step(_hang, timeout=0.2)


def _run_number() -> int:
    """Of this attempt, as the program of the child process knows it."""
    (program,) = [one for one in gc.get_objects() if type(one).__name__ == "ChildProgram"]
    return int(program._attempt.run)


def _forged(kind: str, fields: dict[str, Any], texts: list[str]) -> bytes:
    """A message to the worker that nobody has checked. A payload cannot hold NUL, for which ␀ stands."""
    head = json.dumps(fields).encode()
    written = [text.replace("␀", "\0").encode() for text in texts]
    body = b"".join(len(text).to_bytes(4) + text for text in written)
    return kind.encode() + len(head).to_bytes(4) + len(body).to_bytes(4) + head + body


@app.task("work.forge", executor="process", retry=NoRetry(), timeout=30)
def forge(messages: list[tuple[str, dict[str, Any], list[str]]]) -> None:
    run = _run_number()
    os.write(3, b"".join(_forged(kind, {"run": run, **fields}, texts) for kind, fields, texts in messages))
    time.sleep(600)


@app.task("work.write_to_worker", executor="process", retry=NoRetry(), timeout=30)
def write_to_worker(data: str) -> None:
    os.write(3, bytes.fromhex(data))
    time.sleep(600)


@app.task("work.flood", executor="process", retry=NoRetry())
def flood(kind: str, fields: dict[str, Any], texts: list[str], times: int) -> None:
    """The same message over and over, each question with a new number. Each text stands for so many of it."""
    whole, run = [f"[{text * times}1]" for text in texts], _run_number()
    for number in itertools.count(1_000_000):
        asks = {"ask": number} if "ask" in fields else {}
        written = memoryview(_forged(kind, {**fields, **asks, "run": run}, whole))
        while written:
            written = written[os.write(3, written) :]


@app.task("work.large_steps", executor="process", retry=NoRetry())
async def large_steps(ctx: Context, count: int, size: int) -> int:
    """Steps that end together, so that their results are sent together."""
    found = await asyncio.gather(*(ctx.step(_repeat, size, key=n) for n in range(count)))
    return sum(map(len, found))


def _repeat(size: int) -> str:
    return "x" * size


@app.task("work.large_result", executor="process", retry=NoRetry())
def large_result(size: int) -> str:
    return "x" * size


@app.task("work.large_map", executor="process", retry=NoRetry())
def large_map(ctx: SyncContext, count: int, size: int) -> list[str]:
    return list(ctx.map(echo, ["x" * size] * count))


@app.task("work.echo")
async def echo(text: str) -> str:
    return text[:1]


@app.task("work.asleep")
async def asleep(path: str) -> None:
    Path(path).touch()  # noqa: ASYNC240 - it takes no time
    await asyncio.sleep(600)


@app.task("work.privileges", executor="process")
def privileges() -> str:
    return next(line for line in Path("/proc/self/status").read_text().splitlines() if "NoNewPrivs" in line)


@app.task("work.wait_for_all", executor="process", retry=NoRetry())
async def wait_for_all(ctx: Context, count: int) -> list[int]:
    return list(await asyncio.gather(*(ctx.wait(f"signal {n}", int) for n in range(count))))
