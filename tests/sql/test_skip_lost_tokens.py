"""After a crash of the server, which empties queues.crash_detector, no token is issued again."""

from support.database import Database
from support.engine import Connection, claim_one, enqueue, enqueue_many, value
from support.sessions import in_background, wait_until_blocked


def crash(conn: Connection) -> None:
    """What recovery does to an unlogged table."""
    conn.execute("truncate queues.crash_detector")


def test_the_first_claim_after_a_crash_skips_what_may_have_been_forgotten(tx: Connection) -> None:
    enqueue_many(tx, [{"type": "default.work"}] * 4)
    before = claim_one(tx)["token"]
    assert claim_one(tx)["token"] == before + 1

    crash(tx)

    after = claim_one(tx)["token"]
    assert after > before + 1_000_000_000
    assert claim_one(tx)["token"] == after + 1


def test_the_skip_waits_for_the_disk(db: Database) -> None:
    worker = db.connect("holdfast_worker", autocommit=False)
    admin = db.connect()
    enqueue_many(admin, [{"type": "default.work"}] * 2)
    worker.execute("set synchronous_commit = off")
    claim_one(worker)
    assert value(worker, "show synchronous_commit") == "off"
    worker.commit()

    crash(admin)
    claim_one(worker)

    assert value(worker, "show synchronous_commit") == "on"


def test_claims_at_the_same_time_after_a_crash_wait_for_the_one_that_skips(db: Database) -> None:
    admin = db.connect()
    first, second = (db.connect("holdfast_worker", autocommit=False) for _ in range(2))
    enqueue_many(admin, [{"type": "default.work"}] * 3)
    before = claim_one(admin)["token"]
    crash(admin)

    token = claim_one(first, "w1")["token"]
    with in_background(lambda: claim_one(second, "w2")["token"]) as waiting:
        wait_until_blocked(admin, second)
        first.commit()

        assert before + 1_000_000_000 < token < waiting.result() < before + 2_000_000_000


def test_a_skip_that_is_rolled_back_is_made_again(db: Database) -> None:
    admin = db.connect()
    worker = db.connect("holdfast_worker", autocommit=False)
    enqueue(admin)
    crash(admin)
    undone = claim_one(worker)["token"]
    worker.rollback()

    assert claim_one(worker)["token"] > undone + 1_000_000_000
