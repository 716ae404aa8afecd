"""Sends while workers are killed and the provider fails: each comes to one end, and the facts agree."""

from collections import Counter
from time import monotonic, sleep
from typing import Any

import pytest

from acceptance.ground import Ground
from acceptance.trial import FULL, TIMES, chance, counted, tell, trial
from acceptance.waiting import wait_for
from support.comms import Channel, broken_sends
from support.engine import Connection, rows, value
from support.invariant import assert_invariant
from support.provider_server import Fault, Request
from support.resend_server import API_KEY, ResendServer
from support.twilio_server import ACCOUNT, TOKEN, TwilioServer

EMAIL, SMS = Channel("email"), Channel("sms")
SENDS = 500 * TIMES if FULL else 60
KILLS = 15 * TIMES if FULL else 3
WORKERS = {
    "WORKER_QUEUES": "comms",
    "HOLDFAST_LEASE": 2,
    "HOLDFAST_HEARTBEAT": 0.5,
    "WORKER_CONCURRENCY": 10,
}


class Trouble:
    """A third of all requests fail, half of those after the message was taken over. Seeded, so repeatable."""

    def __init__(self, *faults: tuple[Fault, Fault]) -> None:
        self._chance = chance("provider")
        self._faults = faults
        self.met: Counter[str] = Counter()

    def __call__(self, request: Request) -> Fault | None:
        del request
        sleep(0.005)  # some time passes between the request and its answer, in which workers die
        if self._chance.random() >= 1 / 3:
            self.met["answered"] += 1
            return None
        before, after = self._chance.choice(self._faults)
        fault = self._chance.choice([before, after])
        self.met["accepted, then failed" if fault.accepted else "failed"] += 1
        return fault


def _send_while_workers_die(
    ground: Ground, channel: Channel, settings: dict[str, Any], **terms: Any
) -> float:
    """Kick all sends off, kill a worker every second, and wait until nothing is left to do."""
    victims = chance("victims of sends")
    conn = ground.conn
    conn.execute("update comms.send_cap set most = 1000000")  # all go to the same person
    ground.fleet.start(3, WORKERS | settings)
    began = monotonic()
    for n in range(SENDS):
        channel.kick_off(conn, message_id=channel.create(conn, text_body=f"message {n}"), **terms)
    for _ in range(KILLS):
        sleep(1)
        wait_for("all three to be at work", lambda: len(ground.fleet.ready) == 3)
        victims.choice(ground.fleet.ready).kill()
        ground.fleet.launch(WORKERS | settings)
    ground.quiesce(300)
    return monotonic() - began


def _ends(conn: Connection, channel: Channel) -> dict[str, int]:
    return {
        row["decision"]: row["n"]
        for row in rows(
            conn,
            f"""select decision, count(*) as n from comms.{channel.root}_supervised
                where next_task_id is null group by 1""",
        )
    }


def _told(ground: Ground, channel: Channel, trouble: Trouble, took: float) -> None:
    conn = ground.conn
    recovered = value(conn, "select count(*) from queues.error where recovered")
    attempts = value(conn, f"select count(*) from comms.{channel.root}_scheduled")
    runs = value(conn, f"select count(*) from comms.{channel.root}_supervised")
    tell(
        f"{SENDS} sends of {channel.name} in {took:.0f} s, {KILLS} kills, {recovered} leases recovered, "
        f"{attempts} attempts, {runs} supervisor runs; calls of the provider: {counted(trouble.met)}; "
        f"ends: {counted(_ends(conn, channel))}"
    )


@trial("P3", "P10")
@pytest.mark.timeout(900 if FULL else 180)
def test_every_email_ends_once_and_is_delivered_at_most_once(ground: Ground) -> None:
    trouble = Trouble(
        (Fault(500), Fault(500, accepted=True)), (Fault.cut(accepted=False), Fault.cut(accepted=True))
    )
    with ResendServer().running() as server:
        server.plan = trouble
        settings = {
            "HOLDFAST_EMAIL_PROVIDER": "resend",
            "HOLDFAST_RESEND_API_KEY": API_KEY,
            "HOLDFAST_RESEND_URL": server.url,
            "HOLDFAST_EMAIL_SENDER": "shop@example.com",
        }
        took = _send_while_workers_die(ground, EMAIL, settings, max_attempts=4)
    conn = ground.conn
    _told(ground, EMAIL, trouble, took)

    assert broken_sends(conn, EMAIL) == {}
    assert_invariant(conn)
    assert sum(_ends(conn, EMAIL).values()) == SENDS
    delivered = Counter(delivery.key for delivery in server.delivered)
    assert max(delivered.values()) == 1
    ids = {delivery.key: delivery.id for delivery in server.delivered}
    for row in rows(
        conn,
        """select t.send_key::text as key, s.provider_message_id as id
           from comms.send_email_task_succeeded s join comms.send_email_task t using (send_email_task_id)""",
    ):
        assert ids[row["key"]] == row["id"]


@trial("P3", "P10")
@pytest.mark.timeout(900 if FULL else 180)
def test_every_text_message_ends_once_and_is_delivered_at_most_once_if_it_stops_when_unknown(
    ground: Ground,
) -> None:
    """Without a key at the provider, only a send that stops can be sure. A 503 says that nothing was sent."""
    trouble = Trouble((Fault(503), Fault.cut(accepted=True)), (Fault(503), Fault(500, accepted=True)))
    with TwilioServer().running() as server:
        server.plan = trouble
        settings = {
            "HOLDFAST_SMS_PROVIDER": "twilio",
            "HOLDFAST_TWILIO_ACCOUNT_SID": ACCOUNT,
            "HOLDFAST_TWILIO_AUTH_TOKEN": TOKEN,
            "HOLDFAST_TWILIO_URL": server.url,
            "HOLDFAST_SMS_SENDER": "+15005550006",
            "HOLDFAST_SMS_COUNTRIES": "+49",
        }
        took = _send_while_workers_die(ground, SMS, settings, max_attempts=4, when_unknown="stop")
    conn = ground.conn
    _told(ground, SMS, trouble, took)

    assert broken_sends(conn, SMS) == {}
    assert_invariant(conn)
    assert sum(_ends(conn, SMS).values()) == SENDS
    delivered = Counter(delivery.body for delivery in server.delivered)
    assert max(delivered.values()) == 1
    succeeded = rows(
        conn,
        """select m.text_body from comms.send_sms_task_succeeded
           join comms.send_sms_task using (send_sms_task_id) join comms.sms_message m using (message_id)""",
    )
    assert {row["text_body"] for row in succeeded} <= delivered.keys()
