"""`make bench-pages`: how long every page, its live part, and every GET route takes with a million tasks.

The database is that of `large_database`, the addresses are those of the router. Results that live pages share
are removed before each request, so that each of them pays for all its statements. Exits with 1 if a page is
too slow.
"""

import argparse
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg

from benchmarks import large_database, sections
from benchmarks.page_addresses import Address, addresses
from holdfast import App
from holdfast._engine import AsyncPreparedEngine, Statement
from holdfast._install.postgres.embedded_server import EmbeddedServer
from holdfast._install.schema import migrate
from holdfast._telemetry.logs import configure
from holdfast.server import create_app
from holdfast.server.site import Site
from holdfast.server.web_server import ListenAddress, bind, make_server
from holdfast.settings import Settings

TITLE = "## The dashboard and the API with a million tasks"
MAX_MS = 300.0
ROUNDS = 40
FAST = (200, 202, 204, 303, 404)
_SETTINGS = {"shared_buffers": "1GB", "max_wal_size": "8GB", "fsync": "off"}


@dataclass(frozen=True, slots=True)
class Measured:
    address: Address
    milliseconds: tuple[float, ...]
    statements: int
    pages: int

    @property
    def p50(self) -> float:
        return statistics.median(self.milliseconds)

    @property
    def p95(self) -> float:
        ordered = sorted(self.milliseconds)
        return ordered[max(0, -(-len(ordered) * 95 // 100) - 1)]

    @property
    def met(self) -> bool:
        return self.p95 <= MAX_MS


class Recorder:
    """The statements that requests run."""

    def __init__(self) -> None:
        self.statements: list[Statement[Any]] = []

    @contextmanager
    def recording(self) -> Iterator[None]:
        original = AsyncPreparedEngine.run

        async def run(engine: AsyncPreparedEngine, statement: Statement[Any]) -> Any:
            self.statements.append(statement)
            return await original(engine, statement)

        AsyncPreparedEngine.run = run  # type: ignore[method-assign, assignment] # for a while
        try:
            yield
        finally:
            AsyncPreparedEngine.run = original  # type: ignore[method-assign]


def as_text(connection: psycopg.Connection[Any], statement: Statement[Any]) -> str:
    """The statement with its parameters as literals."""
    return psycopg.ClientCursor(connection).mogrify(statement.percent_sql.encode(), statement.params)


def pages_of(connection: psycopg.Connection[Any], statement: Statement[Any]) -> int:
    """How many pages of 8 KiB the statement touches. What it changes is rolled back."""
    with connection.transaction(force_rollback=True):
        explained = connection.execute(
            f"explain (analyze, buffers, timing off, format json) {as_text(connection, statement)}".encode()
        ).fetchone()
    assert explained
    plan = explained[0][0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


@contextmanager
def serving(url: str) -> Iterator[tuple[Any, str]]:
    """The application on a port of this machine, without logins, so that values are shown and searched."""
    settings = Settings.load(database_url=url)
    listen = ListenAddress("127.0.0.1", 0, None, None)
    with bind(listen, settings) as listener:
        web = create_app(App(settings=settings), settings=settings, asks_for_login=False, is_local=True)
        server = make_server(web, listen, listener)
        thread = threading.Thread(target=server.run)
        thread.start()
        host, port = listener.getsockname()[:2]
        try:
            with socket.create_connection((host, port)):
                yield web, f"http://{host}:{port}"
        finally:
            server.handle_exit(0, None)
            thread.join()


def request(client: httpx.Client, address: Address) -> float:
    """Milliseconds until the whole page, or the first part of the stream, is here."""
    accept = "text/event-stream" if address.live else "text/html"
    if address.route.startswith("/v1/"):
        accept = "text/event-stream" if address.route.endswith("/stream") else "application/json"
    began = time.perf_counter()
    with client.stream("GET", address.url, headers={"Accept": accept}) as response:
        if address.live:
            next(response.iter_text())
        else:
            response.read()
        taken = time.perf_counter() - began
        if response.status_code not in FAST:
            raise RuntimeError(
                f"GET {address.url} returned {response.status_code}: {response.read()[:500]!r}"
            )
    return taken * 1000


def measure(
    client: httpx.Client,
    site: Site,
    connection: psycopg.Connection[Any],
    address: Address,
    rounds: int,
) -> Measured:
    recorder = Recorder()
    with recorder.recording():
        request(client, address)
    pages = sum(pages_of(connection, statement) for statement in recorder.statements)
    taken = []
    for _ in range(rounds):
        site.forget_shared()
        taken.append(request(client, address))
    return Measured(address, tuple(taken), len(recorder.statements), pages)


def table(measured: list[Measured]) -> str:
    lines = [
        "| address | statements | pages of 8 KiB | p50 ms | p95 ms | |",
        "|---|--:|--:|--:|--:|---|",
    ]
    lines += [
        f"| `{_shown(one.address)}` | {one.statements} | {one.pages:,} | {one.p50:.0f} | {one.p95:.0f} "
        f"| {'met' if one.met else 'MISSED'} |"
        for one in sorted(measured, key=lambda one: -one.p95)
    ]
    return "\n".join(lines)


def _shown(address: Address) -> str:
    return address.name.replace("|", "\\|")


def section(measured: list[Measured], tasks: int, rounds: int) -> str:
    """The part of docs/performance.md about pages."""
    worst = max(measured, key=lambda one: one.p95)
    met = sum(one.met for one in measured)
    words = (
        f"`make bench-pages` writes {tasks:,} tasks of {large_database.TYPES:,} types, "
        f"{large_database.WORKERS} workers and all that belongs to them into a database. Then it requests "
        f"every page, its live part, and every GET route {rounds} times. {met} of {len(measured)} "
        f"addresses respond within {MAX_MS:.0f} ms at p95; the slowest, `{_shown(worst.address)}`, within "
        f"{worst.p95:.0f} ms."
    )
    return f"{TITLE}\n\n{words}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=large_database.TASKS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", default="", help="addresses that contain this")
    parser.add_argument("--home", type=Path, help="keep the database here, and use it again")
    parser.add_argument(
        "--write", action="store_true", help="write docs/performance.md and benchmarks/results.md"
    )
    given = parser.parse_args()
    configure("console", "error")
    with ExitStack() as stack:
        home = given.home or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-")))
        connection = stack.enter_context(prepared(home, given.tasks))
        web, url = stack.enter_context(serving(connection.info.dsn))
        client = stack.enter_context(httpx.Client(base_url=url, timeout=60))
        measured = []
        for address in addresses(web, connection):
            if given.only in address.url:
                measured.append(measure(client, web.state.site, connection, address, given.rounds))
                print(f"{measured[-1].p95:8.1f} ms at p95  {address.name}", flush=True)
    print(table(measured))
    if given.write:
        sections.put(sections.PAGE, sections.PAGES, section(measured, given.tasks, given.rounds))
        sections.put(sections.DETAILS, sections.PAGES, f"{TITLE}\n\n{table(measured)}")
    return 0 if all(one.met for one in measured) else 1


@contextmanager
def prepared(home: Path, tasks: int) -> Iterator[psycopg.Connection[Any]]:
    """A server with the large database, which is loaded if it is empty."""
    home.mkdir(exist_ok=True)
    home.chmod(0o711)  # for the account of the server to pass
    server = EmbeddedServer(home, settings=_SETTINGS)
    url = server.start()
    try:
        migrate(url)
        with psycopg.connect(url, autocommit=True) as connection:
            large_database.load(connection, tasks)
            yield connection
    finally:
        server.stop()


if __name__ == "__main__":
    sys.exit(main())
