"""The split of costs: what is read from the log, and what is computed from variants."""

from benchmarks.costs import PARTS, split
from benchmarks.peers.__main__ import Parts
from benchmarks.records import counted

INSERT = (
    "rmgr: Heap        len (rec/tot):    170/   170, tx:        746, lsn: 0/01A3, prev 0/01A2, "
    "desc: INSERT+INIT off: 1, flags: 0x00, blkref #0: rel 1663/16384/16400 blk 0"
)
LEAF = (
    "rmgr: Btree       len (rec/tot):     72/  8072, tx:        746, lsn: 0/01A4, prev 0/01A3, "
    "desc: INSERT_LEAF off: 3, blkref #0: rel 1663/16384/16405 blk 1 FPW"
)
COMMIT = (
    "rmgr: Transaction len (rec/tot):     34/    34, tx:        746, lsn: 0/01A5, prev 0/01A4, "
    "desc: COMMIT 2026-11-17 12:00:00.000000 UTC"
)


def test_records_are_counted_by_kind_and_relation_without_images_of_pages() -> None:
    other = LEAF.replace("16405", "1259")
    records, sizes = counted([INSERT, INSERT, LEAF, COMMIT, other], {"16400": "task", "16405": "task_pkey"})

    assert records == {
        ("Heap INSERT", "task"): 2,
        ("Btree INSERT_LEAF", "task_pkey"): 1,
        ("Transaction COMMIT", "-"): 1,
    }
    assert sizes == {
        ("Heap INSERT", "task"): 340,
        ("Btree INSERT_LEAF", "task_pkey"): 72,
        ("Transaction COMMIT", "-"): 34,
        ("images of whole pages", "-"): 8000,
        ("alignment", "-"): 18,
    }


def test_the_parts_of_a_bulk_enqueue_add_up_to_what_its_server_process_computes() -> None:
    server = {"floor": 4.0, "parse": 1.0, "task": 4.0, "both": 6.5, "unchecked": 7.5, "ours": 9.0, "api": 0.0}

    found = split({name: [2.0, used] for name, used in server.items()})

    assert [found[part] for part in PARTS] == [1.0, 3.0, 2.5, 1.5, 1.0]
    assert sum(found[part] for part in PARTS) == found["server"] == 9.0


def test_a_part_that_fails_is_named_and_the_next_one_is_measured() -> None:
    parts = Parts()

    def fails() -> None:
        raise RuntimeError("the server is gone\nand more")

    parts.take("costs", fails, "costs")
    parts.take("idle workers", lambda: 12.0, "idle")

    assert parts.failed == ["costs: the server is gone"]
    assert parts.found == {"idle": 12.0}


def test_after_an_interrupt_no_other_part_begins() -> None:
    parts = Parts()

    def interrupted() -> None:
        raise KeyboardInterrupt

    parts.take("round 1 of 3", interrupted)
    parts.take("idle workers", lambda: 12.0, "idle")

    assert parts.failed == ["round 1 of 3: KeyboardInterrupt"]
    assert parts.found == {}
