"""A plain insert from our own driver: what an enqueue can be measured against."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from benchmarks.floor import INDEX, TABLE
from benchmarks.peers.adapters import common

ONE = "insert into floor (payload) values (%s) returning id"
MANY = "insert into floor (payload) select unnest(%s::jsonb[])"


def install() -> None:
    with psycopg.connect(common.URL, autocommit=True) as connection:
        connection.execute(TABLE)
        connection.execute(INDEX)


@contextmanager
def producer() -> Iterator[common.Producer]:
    with psycopg.connect(common.URL, autocommit=True) as connection:
        yield common.Producer(
            lambda seq: connection.execute(ONE, (f'{{"seq": {seq}}}',)).fetchone(),
            lambda seqs: connection.execute(MANY, ([f'{{"seq": {seq}}}' for seq in seqs],)),
        )


def worker() -> None:
    raise SystemExit("the floor only enqueues")


if __name__ == "__main__":
    common.main(install=install, producer=producer, worker=worker)
