"""The dashboard and its actions."""

from planted.bug import Bug

BUGS = [
    Bug(
        "an event of another subscription is sent again",
        "sql/functions/outbox/redrive_events.sql",
        "where d.event_id = redrive_events.event_id and d.subscription_id = _subscription_id returning",
        "where d.event_id = redrive_events.event_id returning",
        "tests/sql/test_subscriptions.py",
    ),
    Bug(
        "events that fail after the preview are sent again too",
        "sql/functions/outbox/redrive_events.sql",
        "      and (died_until is null or d.died_at <= died_until)\n",
        "",
        "tests/sql/test_subscriptions.py",
    ),
    Bug(
        "a client nudges a process of another namespace",
        "sql/functions/process/nudge_process.sql",
        "\n      and (queues.has_role('operator') or i.namespace = queues.namespace())",
        "",
        "tests/sql/test_nudge.py",
    ),
    Bug(
        "a nudge reads in two statements what a worker may change between them",
        "sql/functions/process/nudge_process.sql",
        "select (select r.run_at from queues.ready r where r.task_id = _looked),\n"
        "      exists (select from queues.lease l where l.task_id = _looked) into _run_at, _runs;",
        "_run_at := (select r.run_at from queues.ready r where r.task_id = _looked);\n"
        "    _runs := exists (select from queues.lease l where l.task_id = _looked);",
        "tests/sql/test_nudge.py",
    ),
    Bug(
        "pages of instances lose those that were recorded late",
        "sql/functions/process/list_process_instances.sql",
        "order by case when of_process is null then i.created_at end desc,",
        "order by i.created_at desc,",
        "tests/sql/test_register_process.py",
    ),
    Bug(
        "a function of a process that its owner has weakened is called",
        "sql/functions/process/process_functions.sql",
        "\n  where f.name is not null;",
        "\n  where false;",
        "tests/sql/test_register_process.py",
    ),
    Bug(
        "the facts of a process are shown where values are hidden",
        "http/hidden_values.py",
        "timeline=[_hide_step(step) for step in instance.timeline],",
        "",
        "tests/http/test_processes.py::test_the_facts_are_hidden_where_values_are",
    ),
    Bug(
        "a limit that somebody has set makes health red",
        "sql/functions/health/health_of_queues.sql",
        "case when w.served and h.limited then queues.level_of(w.seconds, 60, 'infinity')",
        "case when false then queues.level_of(w.seconds, 60, 'infinity')",
        "tests/sql/test_health_queues.py",
    ),
    Bug(
        "a page that is loaded shows what a live page read before",
        "http/shared_results.py",
        "if known is None or max_age <= 0 or not",
        "if known is None or not",
        "tests/http/test_shared_results.py",
    ),
    Bug(
        "a list tells hidden values to those who guess them",
        "http/api/tasks.py",
        "    if where is not None and not shown:\n        raise values_hidden()\n",
        "",
        "tests/http/test_bulk_actions.py::test_hidden_values_cannot_be_guessed_by_a_list",
    ),
    Bug(
        "the caller of enqueue decides where the link to a trace leads",
        "http/pages/task_links.py",
        "found = _TRACEPARENT.fullmatch(given) if",
        'found = re.fullmatch(r"(?s)(?P<trace_id>.*)", given) if',
        "tests/http/test_task_page.py::test_what_is_no_trace_is_not_linked",
    ),
    Bug(
        "a task of another schema counts as part of a process",
        "sql/functions/listing/related_to.sql",
        "\n  where starts_with(_task.type, p.schema_name || '.');",
        ";",
        "tests/http/test_task_page.py::test_a_task_of_another_schema_is_in_no_process",
    ),
    Bug(
        "retrying all other errors retries every error of the type",
        "sql/functions/task/contains.sql",
        "\n      or exists (select from queues.error_group g where g.error_group = _group))",
        ")",
        "tests/sql/test_error_groups.py::test_the_tasks_of_the_group_of_all_other_errors_are_found",
    ),
    Bug(
        "a schedule runs twice if the answer to its commit is lost",
        "http/site.py",
        'return await run("holdfast_operator", _as_work(query), actor=caller.name, repeatable=repeatable)',
        'return await run("holdfast_operator", _as_work(query), actor=caller.name)',
        "tests/http/test_schedules.py",
    ),
]
