"""What a task is and what happens to it: enqueue, cancel, retry, batches."""

from planted.bug import Bug

BUGS = [
    Bug(
        "a key that is taken is refused instead of answered",
        "sql/functions/unique_tasks.sql",
        "    order by r.type, r.idempotency_key, r.n\n    on conflict do nothing;\n",
        "    order by r.type, r.idempotency_key, r.n\n    ;\n",
        "tests/sql/test_idempotency.py",
    ),
    Bug(
        "the same key may mean two things",
        "sql/functions/unique_tasks.sql",
        "is distinct from (coalesce(sibling.executor, t.executor), coalesce(sibling.payload, t.payload)::text)",  # noqa: E501 - a line of SQL
        "is null",
        "tests/sql/test_idempotency.py",
    ),
    Bug(
        "a deleted task is still claimed",
        "sql/functions/tasks.sql",
        "delete from queues.ready r where r.task_id = delete_task.task_id returning r.* into _waiting;",
        "select r.* into _waiting from queues.ready r where r.task_id = delete_task.task_id;",
        "tests/sql/test_delete_task.py",
    ),
    Bug(
        "a deleted task keeps its key",
        "sql/functions/tasks.sql",
        "and k.namespace = t.namespace\n      and k.task_id = t.task_id;",
        "and false;",
        "tests/sql/test_idempotency.py",
    ),
    Bug(
        "a cancelled task can still be finished",
        "sql/functions/tasks.sql",
        "delete from queues.lease l where l.task_id = cancel_now.task_id returning l.*)",
        "select l.* from queues.lease l where l.task_id = cancel_now.task_id)",
        "tests/sql/test_cancel.py",
    ),
    Bug(
        "restoring a task locks its deletion before its lease",
        "sql/functions/tasks.sql",
        "array['lease', 'outcome', 'deletion']",
        "array['outcome', 'deletion']",
        "tests/concurrency/test_interleavings.py::test_two_calls_that_queue_for_the_same_row",
    ),
    Bug(
        "who has waited for a row that moved does not look again",
        "sql/functions/tasks.sql",
        "      continue;\n",
        "      place := null;\n      return;\n",
        "tests/concurrency/test_moved_rows.py",
    ),
    Bug(
        "an enqueue of a unique task waits for a row, and not for the task",
        "sql/functions/unique_tasks.sql",
        "    select l.place, l.attempt into _place, _attempt from queues.lock_task(_held.task_id, array['ready']) l;\n",  # noqa: E501 - a line of SQL
        """\
    select 'ready', r.attempt into _place, _attempt from queues.ready r where r.task_id = _held.task_id for update;
    if not found then
      select nullif(l.place, 'ready'), l.attempt into _place, _attempt
      from queues.lock_task(_held.task_id, array['']) l;
    end if;
""",  # noqa: E501 - a line of SQL
        "tests/concurrency/test_moved_rows.py",
    ),
    Bug(
        "a retry that waited takes the task for one that has not ended",
        "sql/functions/tasks.sql",
        "  perform queues.lock_task(task_id, array['outcome']);\n",
        "",
        "tests/concurrency/test_moved_rows.py",
    ),
    Bug(
        "a nudge that waited moves a task that is due",
        "sql/units/messages/processes.sql",
        "if (_run_at > _now) is not true then",
        "if _run_at is null then",
        "tests/concurrency/test_moved_rows.py",
    ),
    Bug(
        "a waiting task that moves begins its attempts anew",
        "sql/functions/tasks.sql",
        "coalesce(m.lane_id, g.lane_id), g.attempt",
        "coalesce(m.lane_id, g.lane_id), 0",
        "tests/sql/test_reschedule.py tests/sql/test_concurrency_keys.py",
    ),
    Bug(
        "the keys of a batch are locked in the order in which they were given",
        "sql/functions/unique_tasks.sql",
        """\
    select distinct on (r.type, r.idempotency_key) r.type, r.idempotency_key, reserve_keys.namespace, ids[r.n]
    from unnest(requests) r
    where r.idempotency_key is not null
    order by r.type, r.idempotency_key, r.n
""",
        """\
    select given.type, given.idempotency_key, reserve_keys.namespace, ids[given.n]
    from (
      select distinct on (r.type, r.idempotency_key) r.type, r.idempotency_key, r.n
      from unnest(requests) r
      where r.idempotency_key is not null
      order by r.type, r.idempotency_key, r.n) given
    order by given.n
""",
        "tests/sql/test_idempotency.py",
    ),
    Bug(
        "a payload may have any size",
        "sql/functions/checks.sql",
        "if octet_length(_text) > max_bytes then",
        "if false then",
        "tests/sql/test_enqueue.py",
    ),
    Bug(
        "a batch of payloads may hold numbers that are too long to read",
        "sql/functions/enqueue.sql",
        "and written !~ ",
        "and written is distinct from ",
        "tests/sql/test_same_rules.py",
    ),
    Bug(
        "an enqueue is acknowledged before it is on disk",
        "sql/functions/enqueue.sql",
        "  _durable := queues.commit_to_disk()",
        "  _durable := null",
        "tests/sql/test_enqueue.py",
    ),
    Bug(
        "retention takes a task by the policy of another status",
        "sql/functions/retention.sql",
        "(where o.status = find_old_tasks.status and o.finished_at < _cutoff)",
        "(where o.finished_at < _cutoff)",
        "tests/sql/test_retention.py",
    ),
    Bug(
        "a key stays taken when its task has gone for good",
        "sql/functions/retention.sql",
        "and k.namespace = f.namespace\n    and k.task_id = f.task_id;",
        "and false;",
        "tests/sql/test_retention.py",
    ),
    Bug(
        "a client cancels tasks of others together with its own",
        "sql/functions/tasks.sql",
        "    where _operates or s.namespace = queues.namespace()\n",
        "",
        "tests/sql/test_act_on_tasks.py",
    ),
    Bug(
        "an act on many tasks waits for another transaction",
        "sql/functions/tasks.sql",
        "set lock_timeout = '500ms'\n",
        "set lock_timeout = '1h'\n",
        "tests/sql/test_act_on_tasks.py",
    ),
    Bug(
        "a run that was cancelled counts as an error",
        "sql/functions/activity.sql",
        "not pg_catalog.starts_with(kind, 'killed_on_') and kind <> 'cancelled_by_handler'",
        "true",
        "tests/sql/test_error_groups.py::test_a_run_that_was_killed_by_an_act_is_no_error",
    ),
    Bug(
        "a search finds hidden error messages",
        "server/pages/task_filters.py",
        "        search_errors=shows_values,\n",
        "",
        "tests/http/test_pages.py",
    ),
    Bug(
        "a list examines as many tasks as there are",
        "sql/functions/listing.sql",
        "is null then 50000 else 10000 end);",
        "is null then 2000000000 else 10000 end);",
        "tests/sql/test_list_tasks.py",
    ),
    Bug(
        "retention rests while it is behind",
        "_worker/duties.py",
        "return 0.0 if step.pruned else (time.monotonic() - began) * REST_FACTOR",
        "return (time.monotonic() - began) * REST_FACTOR",
        "tests/worker/test_duties.py",
    ),
    Bug(
        "a task that breaks every batch takes the others with it",
        "_worker/batches.py",
        "return job.attempt >= job.max_attempts > 1",
        "return False",
        "tests/worker/test_batches.py",
    ),
    Bug(
        "a cancelled task cancels the handler of its whole batch",
        "_worker/batches.py",
        "        if any(job.stop is None for job in self.jobs):\n            return\n",
        "",
        "tests/worker/test_batches.py",
    ),
    Bug(
        "a list of tasks gives up where only newer ones were examined",
        "_engine/tasks.py",
        "return bool(found.task_ids) or found.next is None or time.monotonic() - self._began >= self.seconds",
        "return True",
        "tests/cli/test_list_tasks.py",
    ),
    Bug(
        "a sample counts ten million waiting tasks every ten seconds",
        "sql/functions/activity.sql",
        "select s.taken_at + 50 * s.counting <= _taken_at",
        "select true",
        "tests/sql/test_sample.py",
    ),
    Bug(
        "a login that joins a namespace goes on in the old one",
        "sql/functions/access.sql",
        "  perform queues.renew_routes();\n  insert into queues.access_act (act, occurred_at, actor, reason)\n  values ('namespace_joined'",  # noqa: E501 - a line of SQL
        "  insert into queues.access_act (act, occurred_at, actor, reason)\n  values ('namespace_joined'",
        "tests/sql/test_routes.py",
    ),
    Bug(
        "a route is read while somebody changes what it is made of",
        "sql/functions/lanes.sql",
        "    lock table queues.task_type, queues.namespace_login in share mode nowait;\n",
        "",
        "tests/sql/test_routes.py",
    ),
    Bug(
        "a route of an earlier version is used",
        "sql/functions/enqueue.sql",
        "      and r.version = pg_sequence_last_value('queues.route_version')\n",
        "",
        "tests/sql/test_routes.py",
    ),
    Bug(
        "who has read only a route is no user of its lane",
        "sql/functions/lanes.sql",
        "l.relation in ('queues.lane'::regclass, 'queues.route'::regclass)",
        "l.relation = 'queues.lane'::regclass",
        "tests/sql/test_routes.py",
    ),
    Bug(
        "a route is added to a lane that is being marked as idle",
        "sql/functions/lanes.sql",
        "  for key share skip locked;\n",
        "  ;\n",
        "tests/sql/test_routes.py",
    ),
]
