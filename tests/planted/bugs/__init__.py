"""The bugs that the tests have to notice. Each was a real danger when the code was written."""

from planted.bugs import (
    calls,
    claims,
    commands,
    joins,
    leases,
    pages,
    processes,
    rights,
    shards,
    signals,
    steps,
    tasks,
    units,
    workers,
)

BUGS = [
    *calls.BUGS,
    *leases.BUGS,
    *claims.BUGS,
    *tasks.BUGS,
    *rights.BUGS,
    *processes.BUGS,
    *workers.BUGS,
    *steps.BUGS,
    *signals.BUGS,
    *joins.BUGS,
    *shards.BUGS,
    *pages.BUGS,
    *commands.BUGS,
    *units.BUGS,
]
