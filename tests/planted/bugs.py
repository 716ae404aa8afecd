"""The bugs that the tests have to notice. Each was a real danger when the code was written."""

from planted.bug import Bug

TOKENS = [
    Bug(
        "finish accepts a success with any token",
        "sql/functions/lease/settle_succeeded.sql",
        "and l.token = g.token and l.worker_id",
        "and l.worker_id",
        "tests/sql/test_finish.py",
    ),
    Bug(
        "finish accepts a failure with any token",
        "sql/functions/lease/settle_mixed.sql",
        "and l.token = g.token and l.worker_id",
        "and l.worker_id",
        "tests/sql/test_finish.py",
    ),
    Bug(
        "finish accepts a success from any worker",
        "sql/functions/lease/settle_succeeded.sql",
        " and l.worker_id = settle_succeeded.worker_id",
        "",
        "tests/sql/test_finish.py",
    ),
    Bug(
        "heartbeat prolongs a lease with any token",
        "sql/functions/lease/heartbeat.sql",
        "and l.token = g.token and l.worker_id",
        "and l.worker_id",
        "tests/sql/test_heartbeat.py",
    ),
    Bug(
        "release gives back a task with any token",
        "sql/functions/lease/release.sql",
        "and l.token = g.token and l.worker_id",
        "and l.worker_id",
        "tests/sql/test_release.py",
    ),
    Bug(
        "tokens are issued again after a crash of the server",
        "sql/functions/claim/skip_lost_tokens.sql",
        " + 1000000000",
        "",
        "tests/sql/test_skip_lost_tokens.py",
    ),
    Bug(
        "a report about an event is accepted with any token",
        "sql/functions/outbox/settle_events.sql",
        "and d.token = g.token and d.dispatcher_id",
        "and d.dispatcher_id",
        "tests/sql/test_claim_events.py",
    ),
]

LEASES = [
    Bug(
        "an attempt counts when it is finished and not when it is claimed",
        "sql/functions/lease/recover_leases.sql",
        "s.lane_id, s.attempt from settled s where not s.over",
        "s.lane_id, s.attempt - 1 from settled s where not s.over",
        "tests/sql/test_sweep.py",
    ),
    Bug(
        "a released task loses an attempt",
        "sql/functions/lease/release.sql",
        "f.attempt - 1 from freed f",
        "f.attempt from freed f",
        "tests/sql/test_release.py",
    ),
    Bug(
        "the last attempt is followed by another",
        "sql/functions/lease/settle_mixed.sql",
        "when f.attempt >= t.max_attempts then 'dead_letter'",
        "when f.attempt > t.max_attempts then 'dead_letter'",
        "tests/sql/test_finish.py",
    ),
    Bug(
        "the sweep takes a lease that was prolonged after it looked",
        "sql/functions/lease/sweep.sql",
        "order by l.lease_until limit max_tasks\n    for update skip locked);",
        "order by l.lease_until limit max_tasks);",
        "tests/sql/test_sweep.py",
    ),
    Bug(
        "the sweep takes leases that still hold",
        "sql/functions/lease/sweep.sql",
        "where l.lease_until < _now order by",
        "where l.claimed_at < _now order by",
        "tests/sql/test_sweep.py",
    ),
    Bug(
        "a worker that beats is taken for dead",
        "sql/functions/worker/recover_workers.sql",
        "where w.last_heartbeat < _now - w.timeout",
        "where w.started_at < _now - w.timeout",
        "tests/sql/test_recover_workers.py",
    ),
    Bug(
        "a handler goes on although its lease was lost",
        "worker/beat.py",
        "                self._hands.stop(job, verdict)",
        "                pass",
        "tests/worker/test_beat.py tests/worker/test_context.py",
    ),
    Bug(
        "a result is forgotten when the connection breaks",
        "worker/settle.py",
        "                await self._link.pause(error)",
        "                await self._link.pause(error)\n                return",
        "tests/worker/test_settle.py",
    ),
]

CLAIMS = [
    Bug(
        "a claim waits for rows that another one has locked",
        "sql/functions/claim/lock_ready.sql",
        "order by r.run_at, r.task_id limit max_tasks\n      for update skip locked) r;",
        "order by r.run_at, r.task_id limit max_tasks\n      for update) r;",
        "tests/sql/test_claim.py",
    ),
    Bug(
        "lower priorities are claimed first",
        "sql/functions/claim/claim.sql",
        "group by l.priority order by l.priority desc",
        "group by l.priority order by l.priority",
        "tests/sql/test_claim.py",
    ),
    Bug(
        "a task is claimed before its time",
        "sql/functions/claim/lock_ready.sql",
        "where r.lane_id = lanes[1] and r.run_at <= due and",
        "where r.lane_id = lanes[1] and",
        "tests/sql/test_claim.py",
    ),
    Bug(
        "a paused queue is claimed from",
        "sql/functions/claim/claim.sql",
        "where not exists (select from queues.paused_queue p where p.queue = l.queue)",
        "where true",
        "tests/sql/test_claim.py",
    ),
    Bug(
        "a slot is never free again after a crash",
        "sql/functions/claim/lock_within_limits.sql",
        "\n            and exists (select from queues.lease l where l.task_id = s.task_id "
        "and l.token = s.token)) running",
        ") running",
        "tests/sql/test_limits.py",
    ),
    Bug(
        "a rate is charged for tasks that are looked at and not claimed",
        "sql/functions/claim/lock_within_limits.sql",
        "  end loop;\n  return _picked;",
        "  end loop;\n  perform queues.spend_rate(_picked, lanes, due);\n  return _picked;",
        "tests/sql/test_limits.py",
    ),
    Bug(
        "a rate is charged twice where a claim looks again without its cursor",
        "sql/functions/claim/claim.sql",
        "  if _wanted > 0 and after is not null then\n",
        "  if _wanted > 0 and after is not null then\n"
        "    perform queues.spend_rate(_picked, _limited, _now);\n",
        "tests/sql/test_limits.py",
    ),
    Bug(
        "what a claim takes at a higher priority does not count at a lower one",
        "sql/functions/claim/lock_within_limits.sql",
        "g.may_start) - earlier.count as free",
        "g.may_start) as free",
        "tests/sql/test_limits.py",
    ),
    Bug(
        "two gates collide whose types and keys read alike",
        "sql/functions/claim/gates_of.sql",
        "    select l.lane_id, 'type', l.type, l.concurrency_key, 1, null\n",
        "    select l.lane_id, 'type', '', l.type || ':' || l.concurrency_key, 1, null\n",
        "tests/sql/test_limits.py",
    ),
    Bug(
        "what runs does not count any more when a limit is dropped",
        "sql/functions/limit/drop_limit.sql",
        "  perform queues.enter_running(array(",
        "  perform (array(",
        "tests/sql/test_limits.py",
    ),
    Bug(
        "tasks without a key never run where only keys are limited",
        "sql/functions/claim/claim.sql",
        "\n          and (t.max_running is not null or t.rate is not null)",
        "",
        "tests/sql/test_limits.py",
    ),
    Bug(
        "idle lanes are never removed",
        "sql/functions/limit/tidy_lanes.sql",
        "  update queues.lane l set leaving = -_transaction_id\n  where",
        "  update queues.lane l set leaving = -_transaction_id\n  where false and",
        "tests/sql/test_limits.py tests/sql/test_attacks.py",
    ),
    Bug(
        "a lane goes while somebody may still put a task there",
        "sql/functions/limit/tidy_lanes.sql",
        "l.leaving > 0 and (_oldest is null or l.leaving <= _oldest)",
        "l.leaving > 0",
        "tests/sql/test_limits.py tests/concurrency/test_interleavings.py"
        "::test_a_lane_never_goes_while_somebody_may_put_a_task_there",
    ),
    Bug(
        "a lane is used after it was found idle",
        "sql/functions/task/find_lane.sql",
        "and l.concurrency_key = find_lane.concurrency_key and l.leaving is null",
        "and l.concurrency_key = find_lane.concurrency_key",
        "tests/sql/test_limits.py",
    ),
    Bug(
        "a login makes lanes without bound",
        "sql/functions/limit/check_lanes.sql",
        "  raise exception using errcode = 'QF429',",
        "  raise notice using errcode = 'QF429',",
        "tests/sql/test_attacks.py",
    ),
    Bug(
        "nobody is woken when a slot is free",
        "sql/functions/waiting/tell_waiters.sql",
        "  if _limited then",
        "  if false then",
        "tests/sql/test_wake.py",
    ),
    Bug(
        "a worker that waits is not marked as idle, and nobody wakes it",
        "sql/functions/worker/mark_idle.sql",
        "set idle = coalesce(mark_idle.idle, false)",
        "set idle = false",
        "tests/sql/test_wake.py tests/sql/test_workers.py",
    ),
    Bug(
        "a door counts as kept although nobody keeps it, and nobody is woken",
        "sql/functions/worker/is_kept.sql",
        "select exists (",
        "select not exists (",
        "tests/sql/test_wake.py",
    ),
    Bug(
        "whoever keeps the door looks and tells nobody",
        "sql/functions/worker/ring.sql",
        "perform pg_notify('holdfast', q.queue)",
        "perform q.queue",
        "tests/sql/test_door.py tests/worker/test_door.py",
    ),
    Bug(
        "what is enqueued while a worker falls idle is not looked for",
        "worker/claim.py",
        "        self._look_again = idle\n",
        "",
        "tests/worker/test_claim.py",
    ),
    Bug(
        "a claim that was asked to stop goes on",
        "worker/claim.py",
        "while not self._stopping.is_set():\n            if self._must_hold():",
        "while True:\n            if self._must_hold():",
        "tests/worker/test_stop.py",
    ),
]

TASKS = [
    Bug(
        "a key that is taken is refused instead of answered",
        "sql/functions/enqueue/hold_keys.sql",
        "    on conflict do nothing;\n",
        "    ;\n",
        "tests/sql/test_idempotency.py",
    ),
    Bug(
        "the same key may mean two things",
        "sql/functions/enqueue/hold_keys.sql",
        "and b.spec_hash is distinct from coalesce(sibling.spec_hash, t.spec_hash)",
        "and false",
        "tests/sql/test_idempotency.py",
    ),
    Bug(
        "a deleted task is still claimed",
        "sql/functions/task/delete_task.sql",
        "delete from queues.ready r where r.task_id = delete_task.task_id returning r.* into _waiting;",
        "select r.* into _waiting from queues.ready r where r.task_id = delete_task.task_id;",
        "tests/sql/test_delete_task.py",
    ),
    Bug(
        "a deleted task keeps its key",
        "sql/functions/task/delete_task.sql",
        "and k.idempotency_key = t.idempotency_key and k.task_id = t.task_id;",
        "and k.idempotency_key = t.idempotency_key and false;",
        "tests/sql/test_idempotency.py",
    ),
    Bug(
        "a cancelled task can still be finished",
        "sql/functions/task/cancel.sql",
        "delete from queues.lease l where l.task_id = cancel.task_id returning l.*)",
        "select l.* from queues.lease l where l.task_id = cancel.task_id)",
        "tests/sql/test_cancel.py",
    ),
    Bug(
        "restoring a task locks its deletion before its lease",
        "sql/functions/task/restore_task.sql",
        "  perform from queues.lease l where l.task_id = restore_task.task_id for update;\n",
        "",
        "tests/concurrency/test_interleavings.py::test_two_calls_that_queue_for_the_same_row",
    ),
    Bug(
        "the keys of a batch are locked in the order in which they were given",
        "sql/functions/enqueue/hold_keys.sql",
        """\
    select distinct on (b.type, b.idempotency_key) b.type, b.idempotency_key, b.task_id
    from unnest(batch) b
    where b.idempotency_key is not null
    order by b.type, b.idempotency_key, b.n
""",
        """\
    select given.type, given.idempotency_key, given.task_id
    from (
      select distinct on (b.type, b.idempotency_key) b.type, b.idempotency_key, b.task_id, b.n
      from unnest(batch) b
      where b.idempotency_key is not null
      order by b.type, b.idempotency_key, b.n) given
    order by given.n
""",
        "tests/sql/test_idempotency.py",
    ),
    Bug(
        "a payload may have any size",
        "sql/functions/enqueue/problem_with_document.sql",
        "if octet_length(_text) > max_bytes then",
        "if false then",
        "tests/sql/test_enqueue.py",
    ),
    Bug(
        "an enqueue is acknowledged before it is on disk",
        "sql/functions/enqueue/insert_task.sql",
        "set_config('synchronous_commit', 'on', true)",
        "set_config('synchronous_commit', 'off', true)",
        "tests/sql/test_enqueue.py",
    ),
    Bug(
        "retention takes a task by the policy of another status",
        "sql/functions/retention/find_old_tasks.sql",
        "o.task_id = l.task_id and o.status = find_old_tasks.status and o.finished_at < _cutoff",
        "o.task_id = l.task_id and o.finished_at < _cutoff",
        "tests/sql/test_retention.py",
    ),
    Bug(
        "a key stays taken when its task has gone for good",
        "sql/functions/retention/forget_tasks.sql",
        "and k.idempotency_key = t.idempotency_key and k.task_id = t.task_id;",
        "and k.idempotency_key = t.idempotency_key and false;",
        "tests/sql/test_retention.py",
    ),
]

RIGHTS = [
    Bug(
        "a worker may enqueue",
        "sql/grants.sql",
        "grant execute on function queues.last_error to holdfast_worker;",
        "grant execute on function queues.last_error, queues.enqueue, queues.enqueue_one_for_client\n"
        "to holdfast_worker;",
        "tests/sql/test_attacks.py",
    ),
    Bug(
        "a function of the owner looks names up where its caller says",
        "sql/functions/task/cancel.sql",
        "set search_path = pg_catalog, pg_temp\n",
        "",
        "tests/sql/test_catalog.py",
    ),
    Bug(
        "a client enqueues what acts with the rights of the database",
        "sql/functions/enqueue/check_executor.sql",
        "elsif _needs_process and not for_process then",
        "elsif false then",
        "tests/sql/test_attacks.py",
    ),
    Bug(
        "a client cancels the tasks of others",
        "sql/functions/task/own_task.sql",
        "and (t.enqueued_by = session_user or",
        "and (true or",
        "tests/sql/test_attacks.py",
    ),
    Bug(
        "a function that everybody may execute is run for a task",
        "sql/functions/internal/run_function.sql",
        "      and not has_function_privilege('public', p.oid, 'execute')\n",
        "",
        "tests/sql/test_run_function.py",
    ),
    Bug(
        "a worker runs business functions with all the rights of its login",
        "worker/functions.py",
        "    if session.powerful:",
        "    if session is None:",
        "tests/worker/test_db_function.py",
    ),
    Bug(
        "an event is sent to an internal address behind a public name",
        "outbox/guard.py",
        "                if not is_public(address):\n",
        "                if address is None:\n",
        "tests/outbox/test_guard.py",
    ),
    Bug(
        "an access token may do what its scope does not say",
        "http/auth.py",
        "    if not caller.may(scope):",
        "    if caller is None:",
        "tests/http/test_scopes.py",
    ),
    Bug(
        "a ticket is good for every task",
        "ticket.py",
        '    note = f"holdfast wait\\n{task_id}\\n{expires}".encode()',
        '    note = f"holdfast wait\\n{expires}".encode()',
        "tests/http/test_wait.py",
    ),
]

PROCESSES = [
    Bug(
        "a supervisor schedules an attempt while one is outstanding",
        "sql/functions/comms/decide_send.sql",
        "(6, scheduled > failures, 'wait'",
        "(6, scheduled > failures + 1, 'wait'",
        "tests/sql/test_send_supervisor.py",
    ),
    Bug(
        "a supervisor never gives up",
        "sql/functions/comms/decide_send.sql",
        "(5, run > most_runs, 'gave_up'",
        "(5, false, 'gave_up'",
        "tests/sql/test_send_supervisor.py",
    ),
    Bug(
        "two supervisors read the facts at once",
        "sql/functions/comms/lock_send_email_task.sql",
        "  where t.send_email_task_id = comms.id_of(payload, 'send_email_task_id')\n  for update\n",
        "  where t.send_email_task_id = comms.id_of(payload, 'send_email_task_id')\n",
        "tests/comms/test_races.py",
    ),
    Bug(
        "facts can be updated",
        "sql/functions/process/refuse_change.sql",
        "'create trigger append_only before update or delete or truncate on comms.%I '",
        "'create trigger append_only before delete or truncate on comms.%I '",
        "tests/sql/test_comms_facts.py",
    ),
    Bug(
        "a function's effects are kept though its outcome was refused",
        "worker/functions.py",
        '            if verdict == "accepted":\n                await _commit',
        "            if verdict:\n                await _commit",
        "tests/worker/test_db_function.py",
    ),
    Bug(
        "a validation failure is tried again",
        "worker/db_function.py",
        'return self._reporter.failed(\n                job, "validation_failure",',
        'return self._reporter.retry(\n                job, "validation_failure",',
        "tests/worker/test_db_function.py",
    ),
    Bug(
        "a handler's transaction is committed though its lease was lost",
        "worker/transaction.py",
        'if verdict == "accepted":\n                try:\n                    connection.commit()',
        "if verdict:\n                try:\n                    connection.commit()",
        "tests/worker/test_transaction.py",
    ),
    Bug(
        "a message is sent again although nobody knows whether it was sent",
        "worker/sending.py",
        "    return provider.honours_idempotency_key and before.age < KEY_LIFE",
        "    return True",
        "tests/worker/test_sending.py",
    ),
]

FLEET = [
    Bug(
        "a worker takes over the term of another",
        "sql/functions/worker/lead.sql",
        "  where l.worker_id = excluded.worker_id or l.leader_until < _now;",
        "  where true;",
        "tests/sql/test_workers.py",
    ),
    Bug(
        "a leader acts on after its term has ended",
        "worker/lead.py",
        "        self._acts_until = until\n",
        "        self._acts_until = until + 3600\n",
        "tests/worker/test_lead.py",
    ),
    Bug(
        "who decided on an old version of a schedule fires it",
        "sql/functions/schedule/fire_schedule.sql",
        "where s.name = fire_schedule.name and s.version = fire_schedule.version and",
        "where s.name = fire_schedule.name and",
        "tests/sql/test_fire_schedule.py",
    ),
    Bug(
        "a schedule fires twice for a time when the clock is set back",
        "sql/functions/schedule/fire_schedule.sql",
        "f.schedule = _schedule.name and f.nominal_at = t)",
        "false)",
        "tests/sql/test_fire_schedule.py",
    ),
    Bug(
        "an event that commits late is passed over by who reads along",
        "sql/functions/listing/tail_events.sql",
        "e.event_number, e.transaction_id < _open\n    from queues.event_status e\n    where",
        "e.event_number, true\n    from queues.event_status e\n    where",
        "tests/sql/test_tail_events.py",
    ),
    Bug(
        "an event that commits late overtakes what is on its way",
        "sql/functions/outbox/claim_events.sql",
        "where r.free and r.first_there and not r.busy and",
        "where r.free and r.first_there and",
        "tests/sql/test_claim_events.py",
    ),
    Bug(
        "an event counts as delivered before it was sent",
        "outbox/courier.py",
        "                await self._sink.send(OutgoingEvent(claimed))",
        "                self._early = asyncio.create_task(self._sink.send(OutgoingEvent(claimed)))",
        "tests/outbox/test_dispatcher.py",
    ),
]

BUGS = [*TOKENS, *LEASES, *CLAIMS, *TASKS, *RIGHTS, *PROCESSES, *FLEET]
