"""Tests of the regular suite that `make torture` also runs; each suite counts as one trial."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Suite:
    path: str
    promises: tuple[str, ...]
    title: str
    more: tuple[str, ...] = ()
    """Further files of the same trial."""

    @property
    def files(self) -> tuple[str, ...]:
        return self.path, *self.more


SUITES = [
    Suite(
        "tests/concurrency/test_model.py",
        ("P2", "P3", "P7"),
        "random histories match a Python model of the engine",
    ),
    Suite(
        "tests/concurrency/test_interleavings.py",
        ("P3", "P7"),
        "two concurrent sessions never deadlock, and every order has a serial equivalent",
    ),
    Suite("tests/sql/test_idempotency.py", ("P7",), "a key identifies one task"),
    Suite("tests/sql/test_skip_lost_tokens.py", ("P3",), "tokens that a crash undid are skipped"),
    Suite(
        "tests/sql/test_attacks.py",
        ("P8",),
        "attacks by every role fail",
        (
            "tests/sql/test_attacks_secrets.py",
            "tests/sql/test_attacks_names.py",
            "tests/sql/test_attacks_locks.py",
            "tests/sql/test_attacks_lanes.py",
        ),
    ),
    Suite(
        "tests/sql/test_catalog.py",
        ("P8",),
        "owners, paths and grants in the catalog follow the rules",
        (
            "tests/sql/test_catalog_rights.py",
            "tests/sql/test_catalog_roles.py",
            "tests/sql/test_catalog_bodies.py",
            "tests/sql/test_catalog_facts.py",
        ),
    ),
    Suite("tests/sql/test_record_steps.py", ("P11",), "only the holder of the lease records, and once"),
    Suite(
        "tests/concurrency/test_lost_wakeups.py",
        ("P11",),
        "a suspended run does not miss its signal, in any order of commits",
    ),
    Suite("tests/http/test_scopes.py", ("P8",), "every path of the HTTP API requires its scope"),
    Suite("tests/worker/test_clock.py", ("P9",), "a worker with a wrong clock works like any other"),
    Suite("tests/worker/test_pgbouncer.py", ("P1", "P9"), "workers work behind PgBouncer"),
    Suite(
        "tests/worker/test_child_executor.py",
        ("P4",),
        "handlers in child processes are limited and killed",
        ("tests/worker/test_child_isolation.py",),
    ),
]
