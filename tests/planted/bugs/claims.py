"""Claims, limits and concurrency keys."""

from planted.bug import Bug

BUGS = [
    Bug(
        "a large claim never looks behind the place where the last one ended",
        "sql/functions/claim.sql",
        "p.since > _now - interval '1 second' and p.since <= _now as goes_on",
        "p.since <= _now as goes_on",
        "tests/sql/test_large_claims.py",
    ),
    Bug(
        "a large claim waits for a row that another session has locked",
        "sql/functions/claim.sql",
        "> (_from.run_ats[_first], _from.task_ids[_first]) and r.xmax = '0'",
        "> (_from.run_ats[_first], _from.task_ids[_first])",
        "tests/sql/test_large_claims.py",
    ),
    Bug(
        "a claim trusts that a lane is empty although tasks came after that look",
        "sql/functions/claim.sql",
        "not coalesce(p.is_empty and p.since > began, false)",
        "not coalesce(p.is_empty and p.since < began, false)",
        "tests/sql/test_large_claims.py",
    ),
    Bug(
        "large claims take turns under stricter isolation, too",
        "sql/functions/claim.sql",
        "  if current_setting('transaction_isolation') <> 'read committed' then\n    return false;",
        "  if current_setting('transaction_isolation') = 'chaos' then\n    return false;",
        "tests/sql/test_large_claims.py",
    ),
    Bug(
        "the places where claims ended are kept for ever",
        "sql/functions/claim.sql",
        "where p.lane_id = any (array(select a.lane_id from added a where a.since = _now));",
        "where p.lane_id = any (array(select a.lane_id from added a where a.since is null));",
        "tests/sql/test_large_claims.py",
    ),
    Bug(
        "a claim waits for rows that another one has locked",
        "sql/functions/claim.sql",
        "order by r.run_at, r.task_id limit max_tasks\n      for update skip locked);",
        "order by r.run_at, r.task_id limit max_tasks\n      for update);",
        "tests/sql/test_claim.py",
    ),
    Bug(
        "lower priorities are claimed first",
        "sql/functions/claim.sql",
        "= '' order by l.priority desc offset 0) l;",
        "= '' order by l.priority offset 0) l;",
        "tests/sql/test_claim.py",
    ),
    Bug(
        "lower priorities are claimed first where there is a limit",
        "sql/functions/claim.sql",
        "\n      order by l.priority desc offset 0) l;",
        "\n      order by l.priority offset 0) l;",
        "tests/sql/test_claim.py",
    ),
    Bug(
        "a claim takes all tasks of one type before those of another that came first",
        "sql/functions/claim.sql",
        "      limit 1) is null;\n  end if;",
        "      limit 1) is not null;\n  end if;",
        "tests/sql/test_claim.py",
    ),
    Bug(
        "a task is claimed before its time",
        "sql/functions/claim.sql",
        "where r.lane_id = lanes[_first] and r.run_at <= due\n",
        "where r.lane_id = lanes[_first]\n",
        "tests/sql/test_claim.py",
    ),
    Bug(
        "a rate is charged for tasks that are looked at and not claimed",
        "sql/functions/claim.sql",
        "    perform queues.spend_rate(_picked, _lanes.rated, _now);",
        "    perform queues.spend_rate(array(select ctid from queues.ready), _lanes.rated, _now);",
        "tests/sql/test_limits.py",
    ),
    Bug(
        "a rate is charged twice where a claim looks again without its cursor",
        "sql/functions/claim.sql",
        "  if cardinality(_picked) < max_tasks and after is not null and not _in_turn then\n",
        "  if cardinality(_picked) < max_tasks and after is not null and not _in_turn then\n"
        "    perform queues.spend_rate(_picked, _lanes.rated, _now);\n",
        "tests/sql/test_limits.py",
    ),
    Bug(
        "a rate allows a full period again after each claim",
        "sql/functions/limits.sql",
        "set tokens = queues.tokens_at(t, spend_rate.now) - spent.count",
        "set tokens = t.rate",
        "tests/sql/test_limits.py",
    ),
    Bug(
        "a claim takes more than there is room for where one limit applies to all lanes",
        "sql/functions/claim.sql",
        "max_tasks := least(max_tasks, _rooms[_of_queue[1]], _rooms[_of_type[1]]);",
        "max_tasks := least(max_tasks, 1000 * _rooms[_of_queue[1]], 1000 * _rooms[_of_type[1]]);",
        "tests/sql/test_limits.py",
    ),
    Bug(
        "the limit of one type counts for all types of the queue",
        "sql/functions/claim.sql",
        "\n    and cardinality(array_positions(_of_type, _of_type[1])) = cardinality(lanes)",
        "",
        "tests/sql/test_limits.py",
    ),
    Bug(
        "a claim counts the room of a limit that another claim counts",
        "sql/functions/limits.sql",
        "case when queues.limit_lock_of(t.subject, t.name) = any (_held) then\n        least(",
        "case when true then\n        least(",
        "tests/sql/test_limits.py",
    ),
    Bug(
        "what a claim takes at a higher priority does not count at a lower one",
        "sql/functions/claim.sql",
        "        _rooms[_by_queue] := _rooms[_by_queue] - 1;",
        "        _rooms[_by_queue] := _rooms[_by_queue];",
        "tests/sql/test_limits.py",
    ),
    Bug(
        "two tasks of one key run at once",
        "sql/functions/limits.sql",
        "array(select r.most - r.running from room r",
        "array(select r.most from room r",
        "tests/sql/test_concurrency_keys.py",
    ),
    Bug(
        "two namespaces and keys that read alike are confused",
        "sql/functions/limits.sql",
        "pg_catalog.octet_length(namespace)::text || ':' || namespace || ':' || concurrency_key",
        "'' || concurrency_key",
        "tests/sql/test_concurrency_keys.py",
    ),
    Bug(
        "a task that waits for its key stays there after the other one ended",
        "sql/functions/finish.sql",
        "    from unnest(accepted, places) a(task_id, n);\n"
        "  end if;\n"
        "  if _awaited is not null then\n"
        "    perform queues.bring_back(_awaited);\n"
        "  end if;\n",
        "    from unnest(accepted, places) a(task_id, n);\n"
        "  end if;\n"
        "  if _awaited is not null then\n"
        "    perform _awaited;\n"
        "  end if;\n",
        "tests/sql/test_concurrency_keys.py",
    ),
    Bug(
        "a task is set aside although what it waits for ends meanwhile",
        "sql/functions/limits.sql",
        "select f.n from name f where f.running = (select count(*) from locked l where l.n = f.n)",
        "select f.n from name f",
        "tests/concurrency/test_interleavings.py::test_two_calls_where_a_limit_binds",
    ),
    Bug(
        "a task is claimed and does not know that others of its key wait for it",
        "sql/functions/claim.sql",
        "      case when w.concurrency_key is not null then (",
        "      case when w.concurrency_key is null then (",
        "tests/sql/test_concurrency_keys.py",
    ),
    Bug(
        "cancelling the first task of a key leaves the others behind",
        "sql/functions/tasks.sql",
        "  values (task_id, 'cancelled', _now, _token, _attempt, _worker_id, "
        "queues.actor(), reason);\n"
        "  perform queues.bring_back(array[task_id]);\n",
        "  values (task_id, 'cancelled', _now, _token, _attempt, _worker_id, queues.actor(), reason);\n",
        "tests/sql/test_concurrency_keys.py",
    ),
    Bug(
        "running tasks do not count when a limit is set",
        "sql/functions/limits.sql",
        "    perform queues.count_running(subject, name);",
        "    perform subject, name;",
        "tests/sql/test_limits.py",
    ),
    Bug(
        "tasks that wait for their key do not notice that their limit was raised",
        "sql/functions/limits.sql",
        "  perform queues.bring_back(array(",
        "  perform (array(",
        "tests/sql/test_concurrency_keys.py",
    ),
    Bug(
        "a lane is used after it was found idle",
        "sql/functions/lanes.sql",
        "        and l.concurrency_key = '' and l.leaving is null",
        "        and l.concurrency_key = ''",
        "tests/sql/test_lanes.py",
    ),
    Bug(
        "a paused queue is claimed from",
        "sql/functions/claim.sql",
        "      where not exists (select from queues.paused_queue p where p.queue = l.queue)",
        "      where true",
        "tests/sql/test_claim.py",
    ),
    Bug(
        "idle lanes are never removed",
        "sql/functions/lanes.sql",
        "  update queues.lane l set leaving = -_transaction_id where l.lane_id = any (_lanes);",
        "  update queues.lane l set leaving = -_transaction_id where false;",
        "tests/sql/test_lanes.py tests/sql/test_attacks_lanes.py",
    ),
    Bug(
        "a lane goes while somebody may still put a task there",
        "sql/functions/lanes.sql",
        "l.leaving > 0 and (_oldest is null or l.leaving <= _oldest)",
        "l.leaving > 0",
        "tests/sql/test_lanes.py tests/concurrency/test_interleavings.py"
        "::test_a_lane_never_goes_while_somebody_may_put_a_task_there",
    ),
    Bug(
        "a login makes lanes without bound",
        "sql/functions/lanes.sql",
        "  raise exception using errcode = 'QF429',",
        "  raise notice using errcode = 'QF429',",
        "tests/sql/test_attacks_lanes.py",
    ),
    Bug(
        "no worker is woken when a slot is free",
        "sql/functions/finish.sql",
        "  if _limited then",
        "  if false then",
        "tests/sql/test_wake.py",
    ),
    Bug(
        "a waiting worker is not marked as idle, and is not woken",
        "sql/functions/wakeups.sql",
        "set idle = coalesce(mark_idle.idle, false)",
        "set idle = false",
        "tests/sql/test_wake.py tests/sql/test_workers.py",
    ),
    Bug(
        "wake-ups count as throttled although no worker throttles them",
        "sql/functions/wakeups.sql",
        "select exists (\n",
        "select not exists (\n",
        "tests/sql/test_wake.py",
    ),
    Bug(
        "the worker that throttles the wake-ups sends none",
        "sql/functions/wakeups.sql",
        "perform pg_notify('holdfast', q.queue)",
        "perform q.queue",
        "tests/sql/test_wakeup_throttle.py tests/worker/test_wakeups.py",
    ),
    Bug(
        "what is enqueued while a worker falls idle is not looked for",
        "_worker/claiming.py",
        "        self._look_again = idle\n",
        "",
        "tests/worker/test_claiming.py",
    ),
    Bug(
        "a claim that was asked to stop goes on",
        "_worker/claiming.py",
        "while not self._stopping.is_set():\n            if self._must_hold():",
        "while True:\n            if self._must_hold():",
        "tests/worker/test_stop.py",
    ),
]
