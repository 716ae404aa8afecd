"""comms.record_delivery: what a provider reports after it has taken a message over."""

import pytest

from support.clock import Clock
from support.comms import Channel
from support.database import Database
from support.engine import Connection, refused, rows, value


def _sent(conn: Connection, channel: Channel) -> int:
    send = channel.kick_off(conn)
    channel.supervise(conn, send)
    channel.succeed(conn, send)
    return send


def _report(conn: Connection, send: int, report: str, provider: str = "resend") -> bool:
    return bool(
        value(conn, "select comms.record_delivery(%s, %s, %s, 'why')", [provider, f"m-{send}", report])
    )


def _reports(conn: Connection, channel: Channel, send: int) -> list[object]:
    query = f"select report from comms.{channel.root}_reported where {channel.root}_id = %s order by report"
    return [row["report"] for row in rows(conn, query, [send])]


def test_a_report_is_a_fact_of_the_send(tx: Connection, channel: Channel, clock: Clock) -> None:
    send = _sent(tx, channel)
    assert channel.status(tx, send)["delivery"] is None
    clock.advance(5)

    assert _report(tx, send, "delivered") is True

    status = channel.status(tx, send)
    assert (status["delivery"], status["delivery_reported_at"]) == ("delivered", clock.now)
    history = rows(tx, f"select * from comms.send_{channel.name}_history(%s)", [send])
    assert ("reported as delivered", "why") in [(row["what"], row["reason"]) for row in history]
    events = rows(tx, "select fact from comms.send_event where send_id = %s", [send])
    assert {"fact": "reported_delivered"} in events


def test_repeated_and_late_reports_change_nothing(tx: Connection, channel: Channel, clock: Clock) -> None:
    send = _sent(tx, channel)
    _report(tx, send, "delivered")
    first = clock.now
    clock.advance(86400)

    assert _report(tx, send, "delivered") is True

    assert _reports(tx, channel, send) == ["delivered"]
    assert channel.status(tx, send)["delivery_reported_at"] == first


def test_the_worst_report_is_shown_whatever_comes_later(tx: Connection, channel: Channel) -> None:
    send = _sent(tx, channel)
    for report, shown in (
        ("delivered", "delivered"),
        ("complained", "complained"),
        ("bounced", "complained"),
    ):
        _report(tx, send, report)
        assert channel.status(tx, send)["delivery"] == shown


def test_an_id_that_is_not_known_or_of_another_provider_is_ignored(tx: Connection, channel: Channel) -> None:
    send = _sent(tx, channel)

    assert _report(tx, send + 10**6, "delivered") is False
    assert _report(tx, send, "delivered", "twilio") is False
    assert _reports(tx, channel, send) == []


@pytest.mark.parametrize("report", ["opened", "", None])
def test_an_unknown_report_is_refused(tx: Connection, report: str | None) -> None:
    with refused(tx, "QF400", "report"):
        value(tx, "select comms.record_delivery('resend', 'm', %s)", [report])


def test_clients_and_workers_may_not_report(db: Database) -> None:
    for role in ("holdfast_client", "holdfast_worker", "holdfast_reader"):
        with pytest.raises(Exception, match="permission denied"):
            value(db.connect(role), "select comms.record_delivery('resend', 'm', 'delivered')")
