"""Waiting over TLS, seen from the network: one connection, open from the request to the response."""

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit
from uuid import UUID

import httpx
import pytest

from holdfast._connections.wait_ticket import issue
from holdfast._engine import enqueue, leases, tasks
from holdfast._engine.enqueue import NewTask
from holdfast.server.certificate import own_certificate
from support.database import Database
from support.leases import ended
from support.watch import Watch, watched
from support.web import SECRET, Web, serving

PATIENCE_SECONDS = 30.0


@pytest.fixture
def served(module_db: Database, tmp_path: Path) -> Iterator[tuple[Web, Watch, httpx.Client]]:
    own = own_certificate(tmp_path / "tls")
    certificate = (own.with_key, own.with_key)
    with (
        serving(module_db, certificate=certificate) as web,
        watched(urlsplit(web.url).port or 0) as watch,
        httpx.Client(
            base_url=f"https://localhost:{watch.port}",
            verify=ssl.create_default_context(cafile=own.certificate),
            timeout=PATIENCE_SECONDS,
        ) as client,
    ):
        yield web, watch, client


@pytest.mark.parametrize("way", ["wait", "stream"])
def test_one_encrypted_connection_stays_open_until_the_task_has_ended(
    served: tuple[Web, Watch, httpx.Client], way: str
) -> None:
    web, watch, client = served
    task_id = web.engine.run(enqueue.enqueue(NewTask(f"{way}ing.one")))
    ticket = issue([SECRET], task_id, timedelta(hours=1), time.time())
    with ThreadPoolExecutor() as pool:
        asking = pool.submit(client.get, f"/v1/tasks/{task_id}/{way}", params={"ticket": ticket})
        _until(lambda: web.site.waiting == 1)
        [connection] = watch.open
        assert not asking.done()
        finished_at = _finish(web, f"{way}ing")
        answer = asking.result(PATIENCE_SECONDS)
    client.close()
    _until(lambda: not watch.open)

    assert answer.status_code == 200
    assert '"succeeded"' in answer.text
    assert '"the": "result"' in answer.text
    assert watch.connections == watch.closed_over(finished_at) == [connection]


def _finish(web: Web, queue: str) -> float:
    [task] = web.engine.run(leases.claim("w1", queues=[queue]))
    web.engine.run(leases.finish("w1", [ended(task.task_id, task.token, "succeeded", {"the": "result"})]))
    return _ended_at(web, UUID(task.task_id))


def _ended_at(web: Web, task_id: UUID) -> float:
    found = web.engine.run(tasks.task_status(task_id))
    assert found is not None
    assert found.finished_at is not None
    return found.finished_at.timestamp()


def _until(look: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not look():
        assert time.monotonic() < deadline
        threading.Event().wait(0.005)
