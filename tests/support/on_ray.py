"""An application whose tasks run on a Ray cluster, and the cluster: a small one, in a process of its own."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from holdfast import App, Context, Linear, NoRetry, SyncContext

app = App()

CLUSTER = """
import sys
import ray
context = ray.init(
    num_cpus=2, include_dashboard=False, object_store_memory=80_000_000, _temp_dir=sys.argv[1],
    log_to_driver=False, logging_level="ERROR")
print(context.address_info["gcs_address"], flush=True)
sys.stdin.read()
ray.shutdown()
"""


@app.task("work.add", executor="ray", retry=NoRetry(), ray={"num_cpus": 0.5})
def add(a: int, b: int) -> int:
    return a + b


@app.task("work.measure", executor="ray", retry=NoRetry())
async def measure(ctx: Context, text: str) -> int:
    sys.stdout.write(f"measuring {text}\n")
    sys.stdout.flush()
    subprocess.run(["echo", "by a program"], check=True)  # noqa: ASYNC221 - its output is what counts
    ctx.progress(1, 2)
    await asyncio.sleep(0.3)
    raise ValueError(text)


@app.task("work.hang", executor="ray", retry=NoRetry())
def hang(marker: str) -> None:
    sys.stdout.write("hanging\n")
    sys.stdout.flush()
    Path(marker).write_text(str(os.getpid()))
    while True:
        time.sleep(0.01)


@app.task("work.stay", executor="ray", max_attempts=2, retry=Linear(0, jitter=0))
def stay(marker: str) -> None:
    Path(marker).write_text(str(os.getpid()))
    time.sleep(600)


@app.task("work.late", executor="ray", retry=NoRetry(), timeout=3)
def late() -> None:
    time.sleep(600)


@app.task("work.deaf", executor="ray", retry=NoRetry())
def deaf(marker: str) -> None:
    """Notices no exception: it is in C all the time."""
    sys.stdout.write("deaf\n")
    sys.stdout.flush()
    Path(marker).write_text(str(os.getpid()))
    time.sleep(600)


@app.task("work.crash", executor="ray", retry=NoRetry())
def crash() -> None:
    os._exit(3)


@app.task("work.step", executor="ray", retry=NoRetry())
def step(ctx: SyncContext) -> None:
    ctx.step(abs, -3)


@contextmanager
def cluster(directory: Path, variables: Mapping[str, str]) -> Iterator[str]:
    """The address of a cluster with two CPUs."""
    command = [sys.executable, "-c", CLUSTER, str(directory)]
    environment = os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "HOME": str(directory), **variables}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield process.stdout.readline().strip()
        process.stdin.close()
        process.wait(60)
