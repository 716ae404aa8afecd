"""Deterministic tasks: the same arguments are run once."""

import pytest

from holdfast import App
from holdfast.errors import InvalidHandler
from support.database import Database, shards_of
from support.engine import claim_one, end


async def test_enqueue_answers_with_a_run_of_the_same_spec(db: Database) -> None:
    app = App(db.dsn)

    @app.task("default.square", deterministic=True)
    def square(n: int) -> int:
        return n * n

    @app.task("default.cube", deterministic=True, reuse="active")
    def cube(n: int) -> int:
        return n**3

    first, joined = await square.aenqueue(3), await cube.aenqueue(3)
    assert [first.created, joined.created] == [True, True]
    assert ((await cube.aenqueue(3)).task_id, (await cube.aenqueue(n=3)).created) == (joined.task_id, False)
    assert (await cube.aenqueue(3)).task_id == joined.task_id
    assert (await square.aenqueue(3)).created, "nothing has succeeded yet"

    conn = shards_of(db.connect())[first.task_id.bytes[11]]
    while True:
        task = claim_one(conn)
        end(conn, task, result=9)
        if task["task_id"] == first.task_id:
            break
    again = await square.aenqueue(3)
    assert (again.task_id, again.created, await again.aresult(10)) == (first.task_id, False, 9)
    assert (await square.aenqueue(4)).created
    assert (await square.using(key="mine").aenqueue(3)).created, "a key goes first"
    app.close()


@pytest.mark.parametrize("options", [{"reuse": "active"}, {"deterministic": True, "reuse": "always"}])
def test_what_makes_no_sense_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(InvalidHandler):
        App().task("default.odd", **options)(lambda: None)  # type: ignore[call-overload]
