"""The only Python that names SQL functions and views.

The builders in its modules make one `Statement` per function, under the function's own name. An engine
executes them on the caller's connection, in the caller's transaction, and never commits.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar

import psycopg
from psycopg.rows import tuple_row

from holdfast.engine import access as _access
from holdfast.engine import enqueue as _enqueue
from holdfast.engine import fleet as _fleet
from holdfast.engine import lease as _lease
from holdfast.engine import limit as _limit
from holdfast.engine import mail as _mail
from holdfast.engine import namespace as _namespace
from holdfast.engine import outbox as _outbox
from holdfast.engine import process as _process
from holdfast.engine import retention as _retention
from holdfast.engine import schedule as _schedule
from holdfast.engine import task as _task
from holdfast.engine.statement import Statement
from holdfast.errors import translate

__all__ = ["AsyncEngine", "Engine", "Statement"]

P = ParamSpec("P")
T = TypeVar("T")


def _method(build: Callable[P, Statement[T]]) -> "Callable[Concatenate[Engine, P], T]":
    def execute(self: "Engine", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.run(build(*args, **kwargs))

    execute.__doc__ = build.__doc__
    return execute


def _async_method(
    build: Callable[P, Statement[T]],
) -> "Callable[Concatenate[AsyncEngine, P], Coroutine[Any, Any, T]]":
    async def execute(self: "AsyncEngine", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.run(build(*args, **kwargs))

    execute.__doc__ = build.__doc__
    return execute


def _answer(cursor: psycopg.RawCursor[Any], statement: Statement[T]) -> T:
    with cursor:
        return statement.decode(cursor.fetchall())


async def _async_answer(cursor: psycopg.AsyncRawCursor[Any], statement: Statement[T]) -> T:
    async with cursor:
        return statement.decode(await cursor.fetchall())


class Engine:
    """The engine over a psycopg connection."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def run(self, statement: Statement[T]) -> T:
        # A cursor of our own: the caller's connection may have another row or cursor factory.
        try:
            with psycopg.RawCursor(self.connection, row_factory=tuple_row) as cursor:
                rows = cursor.execute(statement.sql.encode(), statement.params).fetchall()
        except psycopg.Error as error:
            raise translate(error) from error
        return statement.decode(rows)

    def run_ahead(self, statements: Iterable[Statement[T]]) -> Iterator[T]:
        """One after another, but sent ahead: while the server works on one, the next is built."""
        waiting: deque[tuple[psycopg.RawCursor[Any], Statement[T]]] = deque()
        try:
            with self.connection.pipeline():
                for statement in statements:
                    cursor = psycopg.RawCursor(self.connection, row_factory=tuple_row)
                    cursor.execute(statement.sql.encode(), statement.params)
                    waiting.append((cursor, statement))
                    if len(waiting) > 1:
                        yield _answer(*waiting.popleft())
                while waiting:
                    yield _answer(*waiting.popleft())
        except psycopg.Error as error:
            raise translate(error) from error

    enqueue = _method(_enqueue.enqueue)
    enqueue_many = _method(_enqueue.enqueue_many)
    enqueue_reusing = _method(_enqueue.enqueue_reusing)
    enqueue_written = _method(_enqueue.enqueue_written)
    ask = _method(_enqueue.ask)

    claim = _method(_lease.claim)
    claim_work = _method(_lease.claim_work)
    settle_work = _method(_lease.settle_work)
    next_due = _method(_lease.next_due)
    heartbeat = _method(_lease.heartbeat)
    finish = _method(_lease.finish)
    release = _method(_lease.release)
    sweep = _method(_lease.sweep)
    run_function = _method(_lease.run_function)
    last_error = _method(_lease.last_error)

    cancel = _method(_task.cancel)
    retry = _method(_task.retry)
    replay = _method(_task.replay)
    changed_tables = _method(_task.changed_tables)
    delete_task = _method(_task.delete_task)
    restore_task = _method(_task.restore_task)
    reschedule = _method(_task.reschedule)
    watch = _method(_task.watch)
    explain = _method(_task.explain)
    list_tasks = _method(_task.list_tasks)
    list_task_ids = _method(_task.list_task_ids)
    task_status = _method(_task.task_status)
    task_end = _method(_task.task_end)
    task_events = _method(_task.task_events)
    task_errors = _method(_task.task_errors)
    task_looks = _method(_task.task_looks)
    events_of = _method(_task.events_of)

    clock = _method(_fleet.clock)
    pause = _method(_fleet.pause)
    resume = _method(_fleet.resume)
    queue_status = _method(_fleet.queue_status)
    register_worker = _method(_fleet.register_worker)
    register_types = _method(_fleet.register_types)
    unserved_queues = _method(_fleet.unserved_queues)
    retire_worker = _method(_fleet.retire_worker)
    record_environment = _method(_fleet.record_environment)
    provenance = _method(_fleet.provenance)
    is_registered = _method(_fleet.is_registered)
    recover_workers = _method(_fleet.recover_workers)
    mark_idle = _method(_fleet.mark_idle)
    keep_door = _method(_fleet.keep_door)
    leave_door = _method(_fleet.leave_door)
    ring = _method(_fleet.ring)
    lead = _method(_fleet.lead)
    term_left = _method(_fleet.term_left)
    resign = _method(_fleet.resign)
    worker_status = _method(_fleet.worker_status)
    health = _method(_fleet.health)
    measure = _method(_fleet.measure)
    count_activity = _method(_fleet.count_activity)

    emit = _method(_outbox.emit)
    receive = _method(_outbox.receive)
    subscribe = _method(_outbox.subscribe)
    unsubscribe = _method(_outbox.unsubscribe)
    pause_subscription = _method(_outbox.pause_subscription)
    resume_subscription = _method(_outbox.resume_subscription)
    rotate_secret = _method(_outbox.rotate_secret)
    test_subscription = _method(_outbox.test_subscription)
    redrive_events = _method(_outbox.redrive_events)
    attend_outbox = _method(_outbox.attend_outbox)
    claim_events = _method(_outbox.claim_events)
    settle_events = _method(_outbox.settle_events)
    retire_dispatcher = _method(_outbox.retire_dispatcher)
    prune_events = _method(_outbox.prune_events)
    prune_inbox = _method(_outbox.prune_inbox)
    outbox_status = _method(_outbox.outbox_status)
    dispatcher_status = _method(_outbox.dispatcher_status)
    task_deliveries = _method(_outbox.task_deliveries)
    event_deliveries = _method(_outbox.event_deliveries)
    tail_events = _method(_outbox.tail_events)

    set_retention = _method(_retention.set_retention)
    drop_retention = _method(_retention.drop_retention)
    retention_policies = _method(_retention.retention_policies)
    prune = _method(_retention.prune)

    add_schedule = _method(_schedule.add_schedule)
    declare_schedules = _method(_schedule.declare_schedules)
    pause_schedule = _method(_schedule.pause_schedule)
    resume_schedule = _method(_schedule.resume_schedule)
    remove_schedule = _method(_schedule.remove_schedule)
    run_schedule = _method(_schedule.run_schedule)
    due_schedules = _method(_schedule.due_schedules)
    next_firing = _method(_schedule.next_firing)
    plan_schedule = _method(_schedule.plan_schedule)
    fire_schedule = _method(_schedule.fire_schedule)
    prune_firings = _method(_schedule.prune_firings)
    schedule_status = _method(_schedule.schedule_status)
    schedule_events = _method(_schedule.schedule_events)
    set_limit = _method(_limit.set_limit)
    drop_limit = _method(_limit.drop_limit)
    limit_status = _method(_limit.limit_status)
    tidy_slots = _method(_limit.tidy_slots)
    tidy_lanes = _method(_limit.tidy_lanes)

    reserve_send = _method(_mail.reserve_send)
    keep_message = _method(_mail.keep_message)
    list_mailbox = _method(_mail.list_mailbox)
    mailbox_message = _method(_mail.mailbox_message)
    clear_mailbox = _method(_mail.clear_mailbox)
    erase_messages = _method(_mail.erase_messages)
    record_delivery = _method(_mail.record_delivery)
    send_email = _method(_mail.send_email)
    send_sms = _method(_mail.send_sms)
    send_status = _method(_mail.send_status)

    namespace = _method(_namespace.namespace)
    add_to_namespace = _method(_namespace.add_to_namespace)
    remove_from_namespace = _method(_namespace.remove_from_namespace)
    namespace_members = _method(_namespace.namespace_members)
    registered_processes = _method(_process.registered_processes)
    process_status = _method(_process.process_status)
    process_looks = _method(_process.process_looks)
    watch_processes = _method(_process.watch_processes)
    cancel_process = _method(_process.cancel_process)
    record_process_files = _method(_process.record_process_files)
    find_orphans = _method(_process.find_orphans)
    processes_to_repair = _method(_process.processes_to_repair)
    prune_processes = _method(_process.prune_processes)

    create_token = _method(_access.create_token)
    renew_token = _method(_access.renew_token)
    revoke_token = _method(_access.revoke_token)
    check_token = _method(_access.check_token)
    open_session = _method(_access.open_session)
    check_session = _method(_access.check_session)
    close_session = _method(_access.close_session)
    record_reveal = _method(_access.record_reveal)
    record_message_reveal = _method(_access.record_message_reveal)
    access_tokens = _method(_access.access_tokens)
    access_events = _method(_access.access_events)
    reveals_of = _method(_access.reveals_of)
    watch_many = _method(_access.watch_many)
    search_tasks = _method(_access.search_tasks)
    take_sample = _method(_access.take_sample)
    list_activity = _method(_access.list_activity)


class AsyncEngine:
    """The same over an asynchronous psycopg connection."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self.connection = connection

    async def run(self, statement: Statement[T]) -> T:
        try:
            async with psycopg.AsyncRawCursor(self.connection, row_factory=tuple_row) as cursor:
                await cursor.execute(statement.sql.encode(), statement.params)
                rows = await cursor.fetchall()
        except psycopg.Error as error:
            raise translate(error) from error
        return statement.decode(rows)

    async def run_ahead(self, statements: Iterable[Statement[T]]) -> AsyncIterator[T]:
        waiting: deque[tuple[psycopg.AsyncRawCursor[Any], Statement[T]]] = deque()
        try:
            async with self.connection.pipeline():
                for statement in statements:
                    cursor = psycopg.AsyncRawCursor(self.connection, row_factory=tuple_row)
                    await cursor.execute(statement.sql.encode(), statement.params)
                    waiting.append((cursor, statement))
                    if len(waiting) > 1:
                        yield await _async_answer(*waiting.popleft())
                while waiting:
                    yield await _async_answer(*waiting.popleft())
        except psycopg.Error as error:
            raise translate(error) from error

    enqueue = _async_method(_enqueue.enqueue)
    enqueue_many = _async_method(_enqueue.enqueue_many)
    enqueue_reusing = _async_method(_enqueue.enqueue_reusing)
    enqueue_written = _async_method(_enqueue.enqueue_written)
    ask = _async_method(_enqueue.ask)

    claim = _async_method(_lease.claim)
    claim_work = _async_method(_lease.claim_work)
    settle_work = _async_method(_lease.settle_work)
    next_due = _async_method(_lease.next_due)
    heartbeat = _async_method(_lease.heartbeat)
    finish = _async_method(_lease.finish)
    release = _async_method(_lease.release)
    sweep = _async_method(_lease.sweep)
    run_function = _async_method(_lease.run_function)
    last_error = _async_method(_lease.last_error)

    cancel = _async_method(_task.cancel)
    retry = _async_method(_task.retry)
    replay = _async_method(_task.replay)
    changed_tables = _async_method(_task.changed_tables)
    delete_task = _async_method(_task.delete_task)
    restore_task = _async_method(_task.restore_task)
    reschedule = _async_method(_task.reschedule)
    watch = _async_method(_task.watch)
    explain = _async_method(_task.explain)
    list_tasks = _async_method(_task.list_tasks)
    list_task_ids = _async_method(_task.list_task_ids)
    task_status = _async_method(_task.task_status)
    task_end = _async_method(_task.task_end)
    task_events = _async_method(_task.task_events)
    task_errors = _async_method(_task.task_errors)
    task_looks = _async_method(_task.task_looks)
    events_of = _async_method(_task.events_of)

    clock = _async_method(_fleet.clock)
    pause = _async_method(_fleet.pause)
    resume = _async_method(_fleet.resume)
    queue_status = _async_method(_fleet.queue_status)
    register_worker = _async_method(_fleet.register_worker)
    register_types = _async_method(_fleet.register_types)
    unserved_queues = _async_method(_fleet.unserved_queues)
    retire_worker = _async_method(_fleet.retire_worker)
    record_environment = _async_method(_fleet.record_environment)
    provenance = _async_method(_fleet.provenance)
    is_registered = _async_method(_fleet.is_registered)
    recover_workers = _async_method(_fleet.recover_workers)
    mark_idle = _async_method(_fleet.mark_idle)
    keep_door = _async_method(_fleet.keep_door)
    leave_door = _async_method(_fleet.leave_door)
    ring = _async_method(_fleet.ring)
    lead = _async_method(_fleet.lead)
    term_left = _async_method(_fleet.term_left)
    resign = _async_method(_fleet.resign)
    worker_status = _async_method(_fleet.worker_status)
    health = _async_method(_fleet.health)
    measure = _async_method(_fleet.measure)
    count_activity = _async_method(_fleet.count_activity)

    emit = _async_method(_outbox.emit)
    receive = _async_method(_outbox.receive)
    subscribe = _async_method(_outbox.subscribe)
    unsubscribe = _async_method(_outbox.unsubscribe)
    pause_subscription = _async_method(_outbox.pause_subscription)
    resume_subscription = _async_method(_outbox.resume_subscription)
    rotate_secret = _async_method(_outbox.rotate_secret)
    test_subscription = _async_method(_outbox.test_subscription)
    redrive_events = _async_method(_outbox.redrive_events)
    attend_outbox = _async_method(_outbox.attend_outbox)
    claim_events = _async_method(_outbox.claim_events)
    settle_events = _async_method(_outbox.settle_events)
    retire_dispatcher = _async_method(_outbox.retire_dispatcher)
    prune_events = _async_method(_outbox.prune_events)
    prune_inbox = _async_method(_outbox.prune_inbox)
    outbox_status = _async_method(_outbox.outbox_status)
    dispatcher_status = _async_method(_outbox.dispatcher_status)
    task_deliveries = _async_method(_outbox.task_deliveries)
    event_deliveries = _async_method(_outbox.event_deliveries)
    tail_events = _async_method(_outbox.tail_events)

    set_retention = _async_method(_retention.set_retention)
    drop_retention = _async_method(_retention.drop_retention)
    retention_policies = _async_method(_retention.retention_policies)
    prune = _async_method(_retention.prune)

    add_schedule = _async_method(_schedule.add_schedule)
    declare_schedules = _async_method(_schedule.declare_schedules)
    pause_schedule = _async_method(_schedule.pause_schedule)
    resume_schedule = _async_method(_schedule.resume_schedule)
    remove_schedule = _async_method(_schedule.remove_schedule)
    run_schedule = _async_method(_schedule.run_schedule)
    due_schedules = _async_method(_schedule.due_schedules)
    next_firing = _async_method(_schedule.next_firing)
    plan_schedule = _async_method(_schedule.plan_schedule)
    fire_schedule = _async_method(_schedule.fire_schedule)
    prune_firings = _async_method(_schedule.prune_firings)
    schedule_status = _async_method(_schedule.schedule_status)
    schedule_events = _async_method(_schedule.schedule_events)

    reserve_send = _async_method(_mail.reserve_send)
    keep_message = _async_method(_mail.keep_message)
    list_mailbox = _async_method(_mail.list_mailbox)
    mailbox_message = _async_method(_mail.mailbox_message)
    clear_mailbox = _async_method(_mail.clear_mailbox)
    erase_messages = _async_method(_mail.erase_messages)
    record_delivery = _async_method(_mail.record_delivery)
    send_email = _async_method(_mail.send_email)
    send_sms = _async_method(_mail.send_sms)
    send_status = _async_method(_mail.send_status)
    set_limit = _async_method(_limit.set_limit)
    drop_limit = _async_method(_limit.drop_limit)
    limit_status = _async_method(_limit.limit_status)
    tidy_slots = _async_method(_limit.tidy_slots)
    tidy_lanes = _async_method(_limit.tidy_lanes)

    namespace = _async_method(_namespace.namespace)
    add_to_namespace = _async_method(_namespace.add_to_namespace)
    remove_from_namespace = _async_method(_namespace.remove_from_namespace)
    namespace_members = _async_method(_namespace.namespace_members)
    registered_processes = _async_method(_process.registered_processes)
    process_status = _async_method(_process.process_status)
    process_looks = _async_method(_process.process_looks)
    watch_processes = _async_method(_process.watch_processes)
    cancel_process = _async_method(_process.cancel_process)
    record_process_files = _async_method(_process.record_process_files)
    find_orphans = _async_method(_process.find_orphans)
    processes_to_repair = _async_method(_process.processes_to_repair)
    prune_processes = _async_method(_process.prune_processes)

    create_token = _async_method(_access.create_token)
    renew_token = _async_method(_access.renew_token)
    revoke_token = _async_method(_access.revoke_token)
    check_token = _async_method(_access.check_token)
    open_session = _async_method(_access.open_session)
    check_session = _async_method(_access.check_session)
    close_session = _async_method(_access.close_session)
    record_reveal = _async_method(_access.record_reveal)
    record_message_reveal = _async_method(_access.record_message_reveal)
    access_tokens = _async_method(_access.access_tokens)
    access_events = _async_method(_access.access_events)
    reveals_of = _async_method(_access.reveals_of)
    watch_many = _async_method(_access.watch_many)
    search_tasks = _async_method(_access.search_tasks)
    take_sample = _async_method(_access.take_sample)
    list_activity = _async_method(_access.list_activity)
