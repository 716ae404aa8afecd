"""A program: waits for a task over HTTP, and prints the files of the package that the wait crosses.

Called with the address of a database, by tests/docs/test_life_of_a_task.py.
"""

import json
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any
from uuid import UUID

import httpx
import psycopg

import holdfast
from holdfast import App
from holdfast._connections.wait_ticket import issue
from holdfast._engine import Engine, enqueue, leases
from holdfast._engine.enqueue import NewTask
from holdfast.server import create_app
from holdfast.server.site import Site
from holdfast.server.web_server import ListenAddress, address_of, bind, make_server
from holdfast.settings import Settings
from support.leases import ended

SOURCE = f"{Path(holdfast.__file__).parent}/"
SECRET = "s" * 64

crossed: list[str] = []
"""In the order of the first call."""
tracing = False


def note(frame: FrameType, event: str, _argument: Any) -> None:
    # Nothing here may take a lock: threading calls this while it holds its own.
    if tracing and event == "call":
        code = frame.f_code
        name = code.co_filename.removeprefix(SOURCE)
        if code.co_name != "<module>" and name != code.co_filename and name not in crossed:
            crossed.append(name)


def wait_for_one(engine: Engine, site: Site, client: httpx.Client) -> None:
    task_id: UUID = engine.run(enqueue.enqueue(NewTask("waits.one")))
    [claimed] = engine.run(leases.claim("w1", queues=["waits"]))

    def finish() -> None:
        while not site.waiting:
            time.sleep(0.005)
        time.sleep(0.2)
        engine.run(leases.finish("w1", [ended(claimed.task_id, claimed.token, "succeeded", 7)]))

    finishing = threading.Thread(target=finish)
    finishing.start()
    params = {"ticket": issue([SECRET], task_id, timedelta(hours=1), time.time())}
    answer = client.get(f"/v1/tasks/{task_id}/wait", params=params)
    finishing.join()
    assert answer.json()["result"] == 7, answer.text


def main() -> None:
    global tracing  # noqa: PLW0603 - the profiler reads it in every thread
    settings = Settings.load(database_url=sys.argv[1], web_secret=SECRET)
    listen = ListenAddress("127.0.0.1", 0)
    web = create_app(App(settings=settings), settings=settings)
    with psycopg.connect(sys.argv[1], autocommit=True) as connection, bind(listen, settings) as listener:
        server, engine = make_server(web, listen, listener), Engine(connection)
        threading.setprofile(note)
        serving = threading.Thread(target=server.run)
        serving.start()
        threading.setprofile(None)
        with httpx.Client(base_url=address_of(listen, listener), timeout=30) as client:
            for _ in range(3):  # the third call of a statement finds it prepared
                wait_for_one(engine, web.state.site, client)
            tracing = True
            wait_for_one(engine, web.state.site, client)
            tracing = False
        server.handle_exit(0, None)
        serving.join()
    sys.stdout.write(json.dumps(crossed) + "\n")


if __name__ == "__main__":
    main()
