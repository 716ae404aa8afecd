"""A program: runs one task with a real worker, and prints the files of the package that the task crosses.

Called with the address of a database, by tests/docs/test_life_of_a_task.py.
"""

import json
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import psycopg

import holdfast
from holdfast import App, Context
from holdfast.task import BoundTask
from support.worker_thread import working

SOURCE = f"{Path(holdfast.__file__).parent}/"
# What these threads do at times of their own is not on the way of a task.
BY_THE_CLOCK = {"holdfast-heartbeat", "holdfast-leader", "holdfast-watchdog"}

app = App(sys.argv[1])
crossed: dict[int, list[str]] = {}
"""Per thread, in the order of the first call."""
tracing = False


@app.task("billing.invoice_charge.v1")
def charge(invoice_id: int) -> int:
    return invoice_id


@app.task("billing.invoice_remind.v1")
async def remind(ctx: Context, invoice_id: int) -> str:
    return str(await ctx.step(write_letter)) + str(invoice_id)


async def write_letter() -> str:
    return "Please pay invoice "


def note(frame: FrameType, event: str, _argument: Any) -> None:
    # Nothing here may take a lock: threading calls this while it holds its own.
    if not tracing or event != "call":
        return
    code = frame.f_code
    if code.co_name != "<module>" and code.co_filename.startswith(SOURCE):
        files = crossed.setdefault(threading.get_ident(), [])
        name = code.co_filename[len(SOURCE) :]
        if name not in files:
            files.append(name)


def run_one(watching: psycopg.Connection[Any], task: BoundTask[[int], Any], invoice_id: int) -> None:
    task_id = task.enqueue(invoice_id).task_id
    while not watching.execute("select from queues.outcome where task_id = %s", [task_id]).fetchall():
        list(watching.notifies(timeout=0.05, stop_after=1))


def traced(watching: psycopg.Connection[Any], task: BoundTask[[int], Any]) -> set[str]:
    """The files that one task crosses."""
    global tracing  # noqa: PLW0603 - the profiler reads it in every thread
    for invoice_id in range(3):  # the third call of a statement finds it prepared
        run_one(watching, task, invoice_id)
    crossed.clear()
    tracing = True
    run_one(watching, task, 7)
    tracing = False
    own = {thread.ident for thread in threading.enumerate() if thread.name in BY_THE_CLOCK}
    return {name for thread, names in crossed.items() if thread not in own for name in names}


def main() -> None:
    threading.setprofile(note)
    sys.setprofile(note)
    with (
        psycopg.connect(sys.argv[1], autocommit=True) as watching,
        working(app, sys.argv[1], worker_queues=["billing"], log_level="error"),
    ):
        watching.execute("listen holdfast_done")
        files = traced(watching, charge)
        caller = crossed[threading.get_ident()]
        with_step = traced(watching, remind)
    app.close()
    found = {"caller": caller, "all": sorted(files), "step": sorted(with_step - files)}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
