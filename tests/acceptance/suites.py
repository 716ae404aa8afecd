"""Everyday tests that `make torture` runs as well, and counts as one trial each."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Suite:
    path: str
    promises: tuple[str, ...]
    title: str


SUITES = [
    Suite(
        "tests/concurrency/test_model.py",
        ("P2", "P3", "P7"),
        "random histories go as the twin of the engine in Python says",
    ),
    Suite(
        "tests/concurrency/test_interleavings.py",
        ("P3", "P7"),
        "whatever the order of two sessions, nobody deadlocks, and one by one could have led to the same",
    ),
    Suite("tests/sql/test_idempotency.py", ("P7",), "a key means one task"),
    Suite("tests/sql/test_skip_lost_tokens.py", ("P3",), "tokens that a crash undid are skipped"),
    Suite("tests/sql/test_attacks.py", ("P8",), "attacks by every role come to nothing"),
    Suite(
        "tests/sql/test_catalog.py", ("P8",), "owners, paths and grants are as the catalog has to have them"
    ),
    Suite("tests/http/test_scopes.py", ("P8",), "every path of the HTTP API asks for its scope"),
    Suite("tests/worker/test_clock.py", ("P9",), "a worker with a wrong clock works as any other"),
    Suite("tests/worker/test_pgbouncer.py", ("P1", "P9"), "workers work behind PgBouncer"),
    Suite(
        "tests/worker/test_child_executor.py",
        ("P4",),
        "handlers in processes of their own are limited and killed",
    ),
]
