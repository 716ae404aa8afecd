"""No page or GET route reads a table that grows from end to end; each reads a bounded number of pages.

The addresses come from the router, and the statements are those that the requests run.
"""

from collections.abc import Iterator

import httpx
import pytest
from benchmarks.page_addresses import Address, addresses, get_routes, urls_of
from benchmarks.pages import Recorder, as_text, request

from benchmarks import large_database
from holdfast.server import create_app
from support.database import Database
from support.query_cost import Meter
from support.web import serving

SMALL = {
    # As many rows as there are workers, running tasks, limits, schedules and the like.
    *(
        "lane",
        "lease",
        "worker",
        "leadership",
        "paused_queue",
        "task_limit",
        "task_type",
        "setting",
        "executor",
    ),
    *("schedule", "subscription", "breaker", "dispatcher", "process", "retention", "installation", "shard"),
    *("namespace_login", "access_token", "access_session", "send_cap", "last_sweep"),
    # Those of two days, of lost workers and of the mailbox.
    *("sample", "loss", "mailbox_message"),
}
FEW = 25_000
"""Rows of a table that may be read whole: PostgreSQL prefers that to an index while there are few."""
MAX_PAGES = 150_000
"""That one statement may touch: a search examines up to 10,000 tasks and their errors."""


def test_every_get_route_has_an_example() -> None:
    routes = dict(get_routes(create_app("postgresql://example.invalid/x")))
    assert all(urls_of(route) for route in routes)
    assert {route for route, is_page in routes.items() if is_page} >= {"/", "/tasks", "/health"}


@pytest.mark.full
@pytest.mark.timeout(900)
def test_every_page_reads_a_bounded_part_of_a_million_tasks(db: Database) -> None:
    admin = db.connect()
    large_database.load(admin)
    with (
        serving(db, asks_for_login=False, web_values="shown") as web,
        httpx.Client(base_url=web.url, timeout=120) as client,
    ):
        pages = [one for one in addresses(web.application, admin) if not one.live]
        meter = Meter(admin)
        found = [problem for page in pages for problem in problems(client, meter, page)]
    assert not found, "\n".join(found)


def problems(client: httpx.Client, meter: Meter, address: Address) -> Iterator[str]:
    """What is not as it should be, in words."""
    recorder = Recorder()
    with recorder.recording():
        request(client, address)
    for statement in recorder.statements:
        text = as_text(meter.conn, statement)
        if "take_sample" in text:  # of the server itself, every ten seconds
            continue
        with meter.conn.transaction(force_rollback=True):
            effort = meter.measure(text)
        if whole := {table for table, rows in effort.read_whole.items() if rows > FEW} - SMALL:
            yield f"{address.url} reads all of {', '.join(sorted(whole))}: {text}"
        if effort.pages > MAX_PAGES:
            yield f"{address.url} touches {effort.pages} pages: {text}"
