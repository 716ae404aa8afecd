"""The fleet of workers, and isolation from handlers."""

from planted.bug import Bug

BUGS = [
    Bug(
        "a worker takes over the term of another",
        "sql/functions/worker/lead.sql",
        "  where l.worker_id = excluded.worker_id or l.leader_until < _now;",
        "  where true;",
        "tests/sql/test_workers.py",
    ),
    Bug(
        "a leader acts on after its term has ended",
        "worker/leader.py",
        "        self._acts_until = until\n",
        "        self._acts_until = until + 3600\n",
        "tests/worker/test_leader.py",
    ),
    Bug(
        "who decided on an old version of a schedule fires it",
        "sql/functions/schedule/fire_schedule.sql",
        " and s.version = fire_schedule.version\n",
        "\n",
        "tests/sql/test_fire_schedule.py",
    ),
    Bug(
        "a schedule fires twice for a time when the clock is set back",
        "sql/functions/schedule/fire_schedule.sql",
        "f.schedule = _schedule.name and f.namespace = _schedule.namespace and f.nominal_at = t)",
        "false)",
        "tests/sql/test_fire_schedule.py",
    ),
    Bug(
        "an event that commits late is passed over by who reads along",
        "sql/functions/listing/tail_events.sql",
        "e.event_number, e.transaction_id < _open\n  from chosen",
        "e.event_number, true\n  from chosen",
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
        "outbox/sender.py",
        "                await self._sink.send(OutgoingEvent(claimed))",
        "                self._early = asyncio.create_task(self._sink.send(OutgoingEvent(claimed)))",
        "tests/outbox/test_dispatcher.py",
    ),
    Bug(
        "a task chooses how much its handler is isolated",
        "executors/executor.py",
        '    if declared in ("process", "command", "ray"):\n        return declared\n',
        '    if declared in ("process", "command", "ray"):\n        return asked\n',
        "tests/worker/test_child_isolation.py::test_the_declaration_of_a_handler_binds_its_isolation_whatever_the_row_says",
    ),
    Bug(
        "a handler that needs an authority runs for those who have none",
        "executors/executor.py",
        'return asked if (asked, declared) == ("process", "python") else None',
        "return asked",
        "tests/worker/test_child_isolation.py::test_a_handler_that_needs_an_authority_is_not_run_for_those_who_have_none",
    ),
    Bug(
        "a child inherits the environment of its worker",
        "executors/child_process.py",
        "environment=boot.environment,",
        "environment={**os.environ, **boot.environment},",
        "tests/worker/test_child_isolation.py::test_a_child_gets_the_variables_that_are_chosen_and_no_others",
    ),
    Bug(
        "a fresh task gets a child that has run others",
        "executors/child_pool.py",
        "            if not (fresh and child.runs):",
        "            if not fresh or child.runs:",
        "tests/executors/test_child_pool.py",
    ),
    Bug(
        "what workers declare does not hold for a task from elsewhere",
        "sql/functions/enqueue/with_defaults.sql",
        "coalesce(given_max_attempts, d.max_attempts, 3)",
        "coalesce(given_max_attempts, 3)",
        "tests/sql/test_register_types.py",
    ),
    Bug(
        "a worker claims however many reports wait to be stored",
        "worker/jobs.py",
        "if len(self.held) - len(self.running) - len(self.waiting) > MAX_UNREPORTED:",
        "if False:",
        "tests/worker/test_running.py::test_nothing_is_claimed_while_too_many_reports_wait",
    ),
    Bug(
        "answers of the server are not read while handlers can be started",
        "worker/running.py",
        "            self._starts_left -= 1\n",
        "",
        "tests/worker/test_running.py::test_the_event_loop_reads_its_connections_between_many_handlers",
    ),
]
