"""holdfast events tail: follow the events of the outbox."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from fnmatch import fnmatchcase
from itertools import count
from typing import Annotated
from uuid import UUID

import typer

from holdfast._connections.session import facts_of
from holdfast._engine import Engine, events
from holdfast._engine.events import TailedEvent
from holdfast._serialization.text import visible
from holdfast.cli.frame import Json
from holdfast.cli.output import cell_text, json_value
from holdfast.errors import ConfigurationError

PAGE = 1000


def tail(
    *,
    engine: Engine,
    event: Annotated[
        str, typer.Option("--event", metavar="PATTERN", help="Only events whose type matches: order.*")
    ] = "*",
    lines: Annotated[
        int, typer.Option("-n", "--lines", min=0, max=10_000, help="Number of past events to show.")
    ] = 10,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Follow new events until Ctrl-C, or exit.")
    ] = True,
    interval: Annotated[float, typer.Option(min=0.05, metavar="SECONDS", help="Polling interval.")] = 0.5,
    as_json: Json = False,
) -> None:
    """Show events of the outbox as they are committed."""
    if follow and facts_of(engine.connection).is_front:
        raise ConfigurationError(
            "events are followed on one shard, and this is a front",
            hint="Give --database-url with the address of a shard (holdfast shards status lists them), "
            "or --no-follow.",
        )
    event_tail = EventTail(engine)
    with suppress(KeyboardInterrupt):
        for poll in count():
            for found in event_tail.start(lines) if poll == 0 else event_tail.read_new():
                if fnmatchcase(found.event_type, event):
                    _print(found, as_json)
            sys.stdout.flush()
            if not follow:
                return
            time.sleep(interval)


class EventTail:
    """Returns each event once, including events of transactions that commit late.

    Reads on from a position before which no event can appear any more, and skips events already seen.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._position = (0, 0)
        self._seen: dict[UUID, tuple[int, int]] = {}

    def start(self, lines: int) -> list[TailedEvent]:
        newest = self._engine.run(events.tail_events(max_events=max(lines, 1)))
        self._remember(newest)
        return newest[-lines:] if lines else []

    def read_new(self) -> Iterator[TailedEvent]:
        position = self._position
        while True:
            page = self._engine.run(events.tail_events(*position, PAGE))
            yield from (found for found in page if found.event_id not in self._seen)
            self._remember(page)
            if len(page) < PAGE:
                return
            position = (page[-1].transaction_id, page[-1].event_number)

    def _remember(self, page: list[TailedEvent]) -> None:
        positions = {found.event_id: (found.transaction_id, found.event_number) for found in page}
        self._position = max([self._position, *(positions[found.event_id] for found in page if found.final)])
        self._seen = {
            event_id: position
            for event_id, position in (self._seen | positions).items()
            if position > self._position
        }


def _print(found: TailedEvent, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(asdict(found), default=json_value))
        return
    about = found.aggregate_id or found.subject or ""
    state = f"{found.delivered}/{found.deliveries}" + (f" dead {found.dead}" if found.dead else "")
    line = f"{cell_text(found.occurred_at)}  {found.event_type}  {about}  {state}  {cell_text(found.data)}"
    typer.echo(visible(line).replace("\n", "\\n"))
