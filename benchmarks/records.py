"""The records of the write-ahead log between two positions, as pg_waldump lists them."""

import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from benchmarks.peers.cluster import Connection
from holdfast._install.postgres.embedded_server import EmbeddedServer
from holdfast._install.postgres.installation import binaries

Row = dict[str, Any]
Group = tuple[str, str]
ALIGNMENT = 8
LEAST_BYTES = 4
"""Records with less than this per task are added up."""
RECORD = re.compile(
    r"rmgr: (?P<manager>\S+)\s+len \(rec/tot\):\s*(?P<bare>\d+)/\s*(?P<total>\d+),"
    r".*?desc: (?P<kind>[A-Z_0-9]+)(?:.*?rel \d+/\d+/(?P<file>\d+))?"
)
NAMES = """
select pg_relation_filenode(c.oid)::text, coalesce('large values of ' || t.relname, c.relname)
from pg_class c left join pg_class t on t.reltoastrelid = c.oid
where pg_relation_filenode(c.oid) is not null and coalesce(t.relnamespace, c.relnamespace) =
  'queues'::regnamespace
"""


def by_record(
    server: EmbeddedServer, connection: Connection, what: str, positions: tuple[str, str], tasks: int
) -> Iterator[Row]:
    """What one task wrote, the largest first; the last row is the sum."""
    names: dict[str, str] = dict(connection.execute(NAMES).fetchall())
    records, sizes = counted(listed(server, *positions), names)
    few = Counter[str]()
    for group, size in sizes.most_common():
        if size / tasks < LEAST_BYTES:
            few["records"] += records[group]
            few["bytes"] += size
        else:
            yield _row(what, group, records[group] / tasks, size / tasks)
    yield _row(what, ("other records", "-"), few["records"] / tasks, few["bytes"] / tasks)
    yield _row(what, ("all", "-"), records.total() / tasks, sizes.total() / tasks)


def listed(server: EmbeddedServer, begin: str, end: str) -> list[str]:
    program = binaries(server.version) / "pg_waldump"
    log = server.status().data / "pg_wal"
    command = [str(program), "-p", str(log), "-s", begin, "-e", end]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def counted(lines: Iterable[str], names: dict[str, str]) -> tuple[Counter[Group], Counter[Group]]:
    """How many records and bytes, by kind and relation.

    Images of whole pages are a kind of their own. Other relations are left out: vacuum writes at any time.
    """
    records, sizes = Counter[Group](), Counter[Group]()
    for line in lines:
        found = RECORD.match(line)
        if not found or (found["file"] and found["file"] not in names):
            continue
        group = (f"{found['manager']} {found['kind']}", names[found["file"]] if found["file"] else "-")
        bare, total = int(found["bare"]), int(found["total"])
        records[group] += 1
        sizes[group] += bare
        sizes["alignment", "-"] += -total % ALIGNMENT
        if total > bare:
            sizes["images of whole pages", "-"] += total - bare
    return records, sizes


def _row(what: str, group: Group, records: float, size: float) -> Row:
    return {"what": what, "record": group[0], "relation": group[1], "records": records, "bytes": size}
