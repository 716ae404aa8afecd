"""Tasks after others, chains, batches with a task after them, and unique and debounced tasks, from Python."""

from collections.abc import Callable

import psycopg
import pytest

from holdfast import App
from holdfast.errors import InvalidArgument, NotFound
from support.database import Database
from support.engine import sweep

Work = Callable[[], int]


@pytest.fixture
def work_all(work: Work, db: Database) -> Work:
    """Run all that is due, and what becomes due by that."""

    def run() -> int:
        count = 0
        while ran := work():
            count += ran
            sweep(db.connect())
        return count

    return run


def test_a_chain_runs_one_after_the_other(app: App, work_all: Work) -> None:
    done: list[str] = []

    @app.task("default.note")
    def note(what: str) -> str:
        done.append(what)
        return what

    chain = app.chain(note.build("extract"), note.build("load"), note.build("report"))
    assert chain.counts() == {"pending": 1, "suspended": 2}
    work_all()
    assert (done, chain.progress()) == (["extract", "load", "report"], (3, 3))


async def test_an_async_chain_ends_where_one_fails(app: App, work_all: Work) -> None:
    @app.task("default.note", max_attempts=1)
    def note(what: str) -> str:
        if what == "load":
            raise ValueError("no")
        return what

    chain = await app.achain(note.build("extract"), note.build("load"), note.build("report"))
    work_all()
    assert await chain.acounts() == {"succeeded": 1, "dead_letter": 1, "cancelled": 1}
    assert (await chain[2].ainfo()).reason == f"after: {chain[1].task_id} ended dead_letter"


@pytest.mark.parametrize(("when", "runs"), [("succeeded", 0), ("ended", 1)])
def test_what_comes_after_a_batch_with_a_failure(app: App, work_all: Work, when: str, runs: int) -> None:
    done: list[int] = []

    @app.task("default.resize", max_attempts=1)
    def resize(image: int) -> None:
        if image == 1:
            raise ValueError("broken")

    @app.task("default.publish")
    def publish(album: int) -> None:
        done.append(album)

    images = [resize.build(n) for n in range(3)]
    batch = app.enqueue_many(images, then=publish.build(7), when=when)  # type: ignore[arg-type]
    work_all()
    assert (len(done), batch.counts()) == (runs, {"succeeded": 2, "dead_letter": 1})


@pytest.mark.parametrize("count", [0, 1])
def test_an_empty_batch_and_a_batch_of_one_are_followed(app: App, work_all: Work, count: int) -> None:
    done: list[int] = []

    @app.task("default.publish")
    def publish(album: int) -> None:
        done.append(album)

    app.enqueue_many([publish.build(n) for n in range(count)], then=publish.build(7))
    work_all()
    assert done == [*range(count), 7]


def test_a_batch_is_enqueued_in_one_transaction(app: App, db: Database) -> None:
    @app.task("default.publish")
    def publish(album: int) -> None: ...

    with psycopg.connect(db.dsn) as tx:
        batch = app.enqueue_many([publish.build(1)], then=publish.build(7), tx=tx)
        app.chain(publish.build(1), publish.build(2), tx=tx)
        publish.using(after=batch, tx=tx).enqueue(3)
        tx.rollback()
    with pytest.raises(NotFound):
        batch[0].status()
    assert batch.counts() == {"removed": 1}


def test_cancelling_a_batch_cancels_what_has_not_ended(app: App, work_all: Work) -> None:
    @app.task("default.publish")
    def publish(album: int) -> None: ...

    batch = app.enqueue_many([publish.build(n) for n in range(3)], then=publish.build(7))
    assert (batch.cancel("enough"), batch.counts()) == (4, {"cancelled": 3})
    assert batch.then is not None
    assert (batch.then.status(), work_all()) == ("cancelled", 0)


def test_a_deleted_task_of_a_batch_counts_as_ended(app: App, db: Database, work_all: Work) -> None:
    @app.task("default.publish")
    def publish(album: int) -> None: ...

    batch = app.enqueue_many([publish.build(n) for n in range(2)], then=publish.build(7), when="ended")
    db.connect().execute("select queues.delete_task(%s)", [batch[0].task_id])
    work_all()
    assert batch.then is not None
    assert (batch.counts(), batch.progress()) == ({"deleted": 1, "succeeded": 1}, (2, 2))
    assert batch.then.status() == "succeeded"


def test_a_task_after_others_by_their_handles(app: App, work_all: Work) -> None:
    done: list[int] = []

    @app.task("default.publish")
    def publish(album: int) -> None:
        done.append(album)

    first = publish.using(priority=-10).enqueue(1)
    publish.using(after=[first], priority=10).enqueue(2)
    work_all()
    assert done == [1, 2]


def test_a_unique_task_is_returned_as_long_as_it_waits(app: App, work_all: Work) -> None:
    @app.task("default.sync")
    def sync(account: int) -> None: ...

    unique = sync.using(key="account-7", unique="waiting")
    first, again = unique.enqueue(7), unique.enqueue(8)
    assert (first.task_id, first.created, again.created) == (again.task_id, True, False)
    work_all()
    assert unique.enqueue(7).created


async def test_a_debounced_task_takes_the_latest_arguments(app: App, work_all: Work) -> None:
    done: list[int] = []

    @app.task("default.sync")
    def sync(account: int) -> None:
        done.append(account)

    soon = sync.using(key="a", debounce=60)
    first = await soon.aenqueue(1)
    last = await soon.using(debounce=0, debounce_max=60).aenqueue(2)
    work_all()
    assert (await first.astatus(), await last.astatus(), done) == ("cancelled", "succeeded", [2])


@pytest.mark.parametrize(
    "options",
    [
        {"unique": "waiting"},
        {"debounce": 5},
        {"when": "ended"},
        {"after": ["no handle"]},
        {"after": [], "unique": "waiting", "key": "k"},
        {"debounce": 5, "delay": 3, "key": "k"},
    ],
)
def test_options_that_make_no_sense_are_refused(app: App, options: dict[str, object]) -> None:
    @app.task("default.sync")
    def sync() -> None: ...

    with pytest.raises(InvalidArgument):
        sync.using(**options).enqueue()  # type: ignore[arg-type]


def test_tasks_of_a_batch_are_unique_debounced_or_after_others(app: App, work_all: Work) -> None:
    done: list[int] = []

    @app.task("default.sync")
    def sync(account: int) -> None:
        done.append(account)

    first = sync.using(priority=-10).enqueue(1)
    unique, soon = sync.using(key="u", unique="waiting"), sync.using(key="d", debounce=0)
    found = app.enqueue_many(
        [
            sync.using(after=[first]).build(2),
            unique.build(3),
            unique.build(4),
            soon.build(5),
            soon.build(6),
            sync.build(7),
        ]
    )
    assert [handle.created for handle in found] == [True, True, False, False, True, True]
    assert (found[1].task_id, found[3].task_id) == (found[2].task_id, found[4].task_id)
    assert (found[0].status(), app.enqueue_many([unique.build(8)])[0].task_id) == (
        "suspended",
        found[1].task_id,
    )
    work_all()
    assert sorted(done) == [1, 2, 3, 6, 7]
    assert done.index(1) < done.index(2)


def test_all_tasks_of_a_batch_come_after_others(app: App, work_all: Work) -> None:
    done: list[int] = []

    @app.task("default.sync")
    def sync(account: int) -> None:
        done.append(account)

    first = sync.using(priority=-10).enqueue(1)
    sync.using(after=[first]).enqueue_many([(2,), (3,)])
    work_all()
    assert done == [1, 2, 3]


def test_a_chain_and_the_task_after_a_batch_decide_what_they_come_after(app: App) -> None:
    @app.task("default.sync")
    def sync() -> None: ...

    unique = sync.using(key="k", unique="waiting").build()
    with pytest.raises(InvalidArgument, match="has no options after, unique or debounce"):
        app.chain(unique)
    with pytest.raises(InvalidArgument, match="has no options after, unique or debounce"):
        app.enqueue_many([], then=unique)
