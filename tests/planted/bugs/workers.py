"""The fleet of workers, and isolation from handlers."""

from planted.bug import Bug

BUGS = [
    Bug(
        "a worker takes over the term of another",
        "sql/functions/fleet.sql",
        "  where l.worker_id = excluded.worker_id or l.leader_until < _now;",
        "  where true;",
        "tests/sql/test_workers.py",
    ),
    Bug(
        "a leader acts on after its term has ended",
        "_worker/leader.py",
        "        self._acts_until = until\n",
        "        self._acts_until = until + 3600\n",
        "tests/worker/test_leader.py",
    ),
    Bug(
        "who decided on an old version of a schedule fires it",
        "sql/functions/schedules.sql",
        " and s.version = fire_schedule.version\n",
        "\n",
        "tests/sql/test_fire_schedule.py",
    ),
    Bug(
        "a schedule fires twice for a time when the clock is set back",
        "sql/functions/schedules.sql",
        "f.schedule = _schedule.name and f.namespace = _schedule.namespace and f.nominal_at = t)",
        "false)",
        "tests/sql/test_fire_schedule.py",
    ),
    Bug(
        "an event that commits late is passed over by who reads along",
        "sql/units/events/events.sql",
        "e.event_number, e.transaction_id < _open\n  from chosen",
        "e.event_number, true\n  from chosen",
        "tests/sql/test_tail_events.py",
    ),
    Bug(
        "a dispatcher whose settlements fail goes on sending",
        "outbox/dispatcher.py",
        "group.create_task(self._settlements.run())",
        "asyncio.create_task(self._settlements.run())",
        "tests/outbox/test_dispatcher.py::test_a_dispatcher_whose_settlements_fail_ends_and_says_so",
    ),
    Bug(
        "an event that commits late overtakes what is on its way",
        "sql/units/events/deliveries.sql",
        "where r.free and r.first_there and not r.busy\n",
        "where r.free and r.first_there\n",
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
        "a worker sends on whatever a child process calls a result",
        "isolation/child_messages.py",
        "    from_json(text, allow_inf_nan=False)\n",
        "",
        "tests/worker/test_child_messages.py::test_a_forged_message_ends_the_run_that_wro"
        "te_it_and_nothing_else",
    ),
    Bug(
        "a child process may write to its worker without end",
        "isolation/child_intake.py",
        "        if self._free_at <= now or self._is_closed:\n",
        "        if True:\n",
        "tests/worker/test_child_messages.py::test_the_log_and_health_name_the_task_that_"
        "writes_too_much_to_its_worker",
    ),
    Bug(
        "a stray that cannot be ended stops the spawner",
        "isolation/spawner.py",
        "        self._report_ended(now)\n",
        "        while self._strays and time.monotonic() < now + CLEAR_SECONDS:\n"
        "            time.sleep(0.1)\n            self._clear(now)\n"
        "        self._report_ended(time.monotonic())\n",
        "tests/executors/test_spawner.py::test_a_stray_that_cannot_be_collected_delays_no_other_run",
    ),
    Bug(
        "a program gains rights by its set-user-ID bit",
        "isolation/spawner.py",
        "        process_tree.refuse_new_privileges()\n",
        "",
        "tests/executors/test_spawner.py::test_no_program_gains_rights_by_its_set_user_id_bit",
    ),
    Bug(
        "runs of one account can end one another",
        "isolation/spawner.py",
        "            process_tree.enclose()\n",
        "            pass\n",
        "tests/executors/test_spawner.py::test_runs_of_one_account_can_neither_signal_nor_trace_one_another",
    ),
    Bug(
        "a task chooses how much its handler is isolated",
        "_worker/executor.py",
        '    if declared != "python" and declared not in IN_DATABASE:\n        return declared\n',
        '    if declared != "python" and declared not in IN_DATABASE:\n        return asked\n',
        "tests/worker/test_child_isolation.py::test_the_declaration_of_a_handler_binds_it"
        "s_isolation_whatever_the_row_says",
    ),
    Bug(
        "a handler that needs an authority runs for those who have none",
        "_worker/executor.py",
        'return asked if (asked, declared) == ("process", "python") else None',
        "return asked",
        "tests/worker/test_child_isolation.py::test_a_handler_that_needs_an_authority_is_"
        "not_run_for_those_who_have_none",
    ),
    Bug(
        "a child inherits the environment of its worker",
        "isolation/child_process.py",
        "environment=boot.environment,",
        "environment={**os.environ, **boot.environment},",
        "tests/worker/test_child_isolation.py::test_a_child_gets_the_variables_that_are_chosen_and_no_others",
    ),
    Bug(
        "a fresh task gets a child that has run others",
        "isolation/child_pool.py",
        "            if not (fresh and child.runs):",
        "            if not fresh or child.runs:",
        "tests/executors/test_child_pool.py",
    ),
    Bug(
        "what workers declare does not hold for a task from elsewhere",
        "sql/functions/enqueue.sql",
        "coalesce(given_max_attempts, d.max_attempts, 3)",
        "coalesce(given_max_attempts, 3)",
        "tests/sql/test_register_types.py",
    ),
    Bug(
        "a worker claims however many reports wait to be stored",
        "_worker/jobs.py",
        "if len(self.held) - len(self.slots.running) - len(self.slots.waiting) > MAX_UNREPORTED:",
        "if False:",
        "tests/worker/test_running.py::test_nothing_is_claimed_while_too_many_reports_wait",
    ),
    Bug(
        "answers of the server are not read while handlers can be started",
        "_worker/running.py",
        "            self._starts_left -= 1\n",
        "",
        "tests/worker/test_running.py::test_the_event_loop_reads_its_connections_between_many_handlers",
    ),
]
