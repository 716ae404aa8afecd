"""holdfast events tail: events as they become known."""

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from fnmatch import fnmatchcase
from itertools import count
from typing import Annotated
from uuid import UUID

import typer

from holdfast.cli.database import DatabaseUrl, connected
from holdfast.cli.output import Json, plain, shown
from holdfast.engine import Engine, events
from holdfast.engine.events import TailedEvent
from holdfast.serialization.text import visible

PAGE = 1000


def tail(
    *,
    event: Annotated[
        str, typer.Option("--event", metavar="PATTERN", help="Only types that match: order.*")
    ] = "*",
    lines: Annotated[
        int, typer.Option("-n", "--lines", min=0, max=10_000, help="How many of the past.")
    ] = 10,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Go on until Ctrl-C, or end with what there is.")
    ] = True,
    interval: Annotated[float, typer.Option(min=0.05, metavar="SECONDS", help="How often to look.")] = 0.5,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Follow the events of the outbox, also those whose transaction commits late."""
    with connected(database_url) as engine:
        follower = Follower(engine)
        try:
            for turn in count():
                for found in follower.start(lines) if turn == 0 else follower.look():
                    if fnmatchcase(found.event_type, event):
                        _print(found, as_json)
                sys.stdout.flush()
                if not follow:
                    return
                time.sleep(interval)
        except KeyboardInterrupt:
            return


class Follower:
    """Each event once. It goes on from where nothing can come in before, and remembers what it saw since."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._place = (0, 0)
        self._seen: dict[UUID, tuple[int, int]] = {}

    def start(self, lines: int) -> list[TailedEvent]:
        newest = self._engine.run(events.tail_events(max_events=max(lines, 1)))
        self._remember(newest)
        return newest[-lines:] if lines else []

    def look(self) -> Iterator[TailedEvent]:
        place = self._place
        while True:
            page = self._engine.run(events.tail_events(*place, PAGE))
            yield from (found for found in page if found.event_id not in self._seen)
            self._remember(page)
            if len(page) < PAGE:
                return
            place = (page[-1].transaction_id, page[-1].event_number)

    def _remember(self, page: list[TailedEvent]) -> None:
        places = {found.event_id: (found.transaction_id, found.event_number) for found in page}
        self._place = max([self._place, *(places[found.event_id] for found in page if found.final)])
        self._seen = {
            event_id: place for event_id, place in (self._seen | places).items() if place > self._place
        }


def _print(found: TailedEvent, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(asdict(found), default=plain))
        return
    about = found.aggregate_id or found.subject or ""
    state = f"{found.delivered}/{found.deliveries}" + (f" dead {found.dead}" if found.dead else "")
    line = f"{shown(found.occurred_at)}  {found.event_type}  {about}  {state}  {shown(found.data)}"
    typer.echo(visible(line).replace("\n", "\\n"))
