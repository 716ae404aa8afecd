"""docs/reference/sinks.md says which sinks there are and what each can be told."""

import pytest

from holdfast.outbox.sink import SinkOptions, known_sinks
from holdfast.outbox.sinks.amqp_sink import AmqpOptions
from holdfast.outbox.sinks.console_sink import ConsoleOptions
from holdfast.outbox.sinks.file_sink import FileOptions
from holdfast.outbox.sinks.http_sink import HttpOptions
from holdfast.outbox.sinks.nats_sink import NatsOptions
from support.database import Database
from support.documents import REFERENCE, rows, sections

OPTIONS: dict[str, type[SinkOptions]] = {
    "http": HttpOptions,
    "nats": NatsOptions,
    "amqp": AmqpOptions,
    "file": FileOptions,
    "console": ConsoleOptions,
}


def test_every_sink_is_described() -> None:
    assert (
        sections(REFERENCE / "sinks.md").keys() - {"Others", "What a subscription can reach"}
        == set(known_sinks())
        == OPTIONS.keys()
    )


@pytest.mark.parametrize("sink", sorted(OPTIONS))
def test_every_option_is_described_with_its_default(sink: str) -> None:
    described = {cells[0]: cells[1] for cells in rows(sections(REFERENCE / "sinks.md")[sink])}
    real = OPTIONS[sink].model_fields
    assert described.keys() == real.keys()
    for name, field in real.items():
        default = field.get_default(call_default_factory=True)
        assert described[name] == (f"{default:g}" if isinstance(default, int | float) else default or ""), (
            name
        )


def test_the_database_knows_the_same_sinks_and_options(db: Database) -> None:
    """So that what a dispatcher would refuse is refused when somebody subscribes."""
    found = db.connect().execute("select sink, options from queues.sink_options()").fetchall()
    assert {sink: set(options) for sink, options in found} == {
        sink: set(options.model_fields) for sink, options in OPTIONS.items()
    }
