"""The pages Processes and Outbox read a bounded part of their tables, however large these are."""

import pytest

from support.database import Database
from support.outbox import subscribe
from support.query_cost import Meter

MANY = 100_000
MOST_PAGES = 6000  # 1,000 rows by index, and their events
LARGE = {"process_instance", "outbox_event", "delivery", "delivered", "dead_delivery"}

PROCESSES = """
insert into queues.process (process, kind, schema_name, root_table, supervisor, repair, cancel, history,
  registered_at, registered_by)
select 'p' || n, 'attempts', 'p' || n, 'x', 'p.' || n, 'p.r', 'p.c', 'p.h', queues.clock(), 'test'
from generate_series(1, 20) n
"""
ENDED = """
insert into queues.process_instance (process, process_id, created_at, created_by, namespace, updated_at,
  decision, ended_at)
select 'p' || 1 + n %% 2, n, queues.clock(), 'test', 'test', queues.clock(), 'succeeded', queues.clock()
from generate_series(1, %s) n
"""
EVENTS = """
insert into queues.outbox_event (event_id, event_number, transaction_id, occurred_at, event_type,
  aggregate_id, emitted_by, namespace, deliveries, data)
select gen_random_uuid(), nextval('queues.event_number'), pg_current_xact_id(), queues.clock(),
  'order.sent', 'a ' || n, 'test', 'test', 1, '{}'
from generate_series(1, %s) n
"""
OUTSTANDING = """
insert into queues.delivery (subscription_id, namespace, aggregate_id, event_number, event_id, emitted_at,
  due_at, attempt, counted)
select %s, e.namespace, e.aggregate_id, e.event_number, e.event_id, e.occurred_at, e.occurred_at, 0, false
from queues.outbox_event e
"""
DEAD = """
insert into queues.dead_delivery (event_id, subscription_id, died_at, attempt, last_error)
select e.event_id, %s, e.occurred_at, 20, '410' from queues.outbox_event e
"""
DELIVERED = """
insert into queues.delivered (event_id, subscription_id, delivered_at, attempt, dispatcher_id)
select e.event_id, %s, e.occurred_at, 1, 'd0' from queues.outbox_event e
"""
READS = [
    "queues.list_processes()",
    "queues.list_process_instances()",
    "queues.list_process_instances('p1')",
    "queues.list_process_instances('p1', null, 50000)",
    "queues.list_process_instances('p1', 'unfinished')",
    "queues.list_process_instances(null, 'trouble')",
    "queues.list_deliveries('ours', 'dead')",
    "queues.list_deliveries('ours', 'outstanding')",
    "queues.list_deliveries('others', 'delivered')",
]


@pytest.mark.timeout(300)
def test_the_pages_read_a_bounded_part_of_large_tables(db: Database) -> None:
    admin, meter = db.connect(), Meter(db.connect())
    ours, others = subscribe(admin, "ours", "order.sent"), subscribe(admin, "others", "nothing.*")
    admin.execute(PROCESSES)
    admin.execute(ENDED, [MANY])
    admin.execute(EVENTS, [MANY])
    for statement, number in ((OUTSTANDING, ours), (DEAD, ours), (DELIVERED, others)):
        admin.execute(statement, [number])
    for analyzed in (False, True):
        if analyzed:
            admin.execute("analyze")
        for read in READS:
            meter.measure(f"select * from {read}")  # the first call plans
            effort = meter.measure(f"select * from {read}")
            assert LARGE & {*effort.read_whole} == set(), (read, analyzed)
            assert effort.pages <= MOST_PAGES, (read, analyzed, effort.pages)
