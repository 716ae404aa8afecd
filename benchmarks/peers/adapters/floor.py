"""A plain insert from our own driver: what an enqueue can be measured against."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from benchmarks.floor import ENQUEUE_MANY, INDEX, TABLE
from benchmarks.peers.adapters import common

ONE = "insert into floor (payload) values (%s) returning id"


def install() -> None:
    with psycopg.connect(common.URL, autocommit=True) as connection:
        connection.execute(TABLE)
        connection.execute(INDEX)


@contextmanager
def producer() -> Iterator[common.Producer]:
    with psycopg.connect(common.URL, autocommit=True) as connection:
        yield common.Producer(
            lambda seq: connection.execute(ONE, (f'{{"seq": {seq}}}',)).fetchone(),
            lambda seqs: connection.execute(ENQUEUE_MANY, ([_written(seq) for seq in seqs],)),
        )


def _written(seq: int) -> str:
    document = common.document_of(seq)
    return f'{{"seq": {seq}}}' if document is None else json.dumps({"seq": seq, "document": document})


def worker() -> None:
    raise SystemExit("the floor only enqueues")


if __name__ == "__main__":
    common.main(install=install, producer=producer, worker=worker)
