"""The words of health: what each of its codes means, and what to do."""

from typing import Any

from holdfast._words.limits import cause
from holdfast._words.template import Facts, Wording, Words, put

_MORE_WORKERS = "Run more workers, or more tasks at once: "
_RETRIED = "It is tried again by itself."
_REMOVAL = "Dead rows cannot be removed meanwhile"
_LATE = "Claims slow down. "
_LOGS = "The log of worker {worker_id} says more. To end it: holdfast cancel {subject}"
_RUN = "; worker {worker_id} has run it for {value:span}"

_QUEUES = {
    "due": Words(
        "the oldest due task of queue {subject} has waited for {value:span}",
        _MORE_WORKERS + "holdfast workers shows which ones serve it.",
    ),
    "oldest_held_back": Words(
        "the oldest due task of queue {subject} has waited for {value:span}: {first_cause}",
        "Limits hold back the oldest due task: {all_causes}. To change them: holdfast limits",
        always=True,
    ),
    "all_held_back": Words(
        "the oldest due task of queue {subject} has waited for {value:span}: {first_cause}",
        "Limits hold back all due tasks: {all_causes}. To change them: holdfast limits",
        always=True,
    ),
    "unserved": Words(
        "no live worker subscribes to queue {subject}, or to a prefix of type {type}; its oldest due task "
        "has waited for {value:span}",
        "Start one: holdfast worker … --queues {subject:shell}",
        always=True,
    ),
    "lanes": Words(
        "tasks wait or run in {used} combinations of queue, type and priority[; {leaving} more are being "
        "removed]",
        _LATE + "Use fewer queues, types and priorities at once.",
    ),
    "lanes_stay": Words(
        "tasks wait or run in {used} combinations of queue, type and priority; {leaving} more are being "
        "removed",
        _LATE
        + "A transaction that has enqueued tasks and stays open keeps idle ones from being removed: look for "
        "the oldest snapshot.",
    ),
    "held_limit": Words(
        "session {subject} of login {login} has claimed under a limit, or changed one, in a transaction "
        "that has been open for {value:span}",
        "Nothing else is claimed under that limit meanwhile. End it in its application, or: select "
        "pg_terminate_backend({subject})",
    ),
    "paused_queue": Words(
        "queue {subject} was paused {value:span} ago by {by}[ because: {reason}]",
        "To resume: holdfast resume {subject:shell}",
    ),
}

_WAITED = (
    "half of the last {tasks:# task|# tasks} of queue {subject} were claimed within {p50:span}, 99 of 100 "
    "within {p99:span}"
)
_FAILED = (
    "[; {attempts:# attempt|# attempts} failed][; {tries:# try|# tries} of steps failed, the last of {step}]"
)
_TO_RETRY = (
    "To see them: holdfast list --type {subject:shell} --status dead_letter (or failed). Once fixed: "
    "holdfast retry --type {subject:shell}"
)
_TO_LOOK = (
    "They are tried again by themselves. To see one: holdfast why {task_id}. All: holdfast errors --type "
    "{subject:shell}"
)

_TASKS = {
    "delay": Words(_WAITED, _MORE_WORKERS + "holdfast workers shows how busy they are."),
    "delay_after_pause": Words(_WAITED + "; it was paused until a moment ago"),
    "delay_under_limit": Words(
        _WAITED,
        "If its limits hold tasks back, that is as intended: holdfast limits. Otherwise run more workers.",
    ),
    "tasks_failed": Words(
        "in the last 10 minutes, {failed} of the last {total:# task|# tasks} of type {subject} failed for "
        "good" + _FAILED,
        _TO_RETRY,
        always=True,
    ),
    "tasks_failed_of_unknown": Words(
        "in the last 10 minutes, {failed:# task|# tasks} of type {subject} failed for good" + _FAILED,
        _TO_RETRY,
        always=True,
    ),
    "attempts_failed": Words(
        "in the last 10 minutes, none of the last {total:# task|# tasks} of type {subject} failed for good"
        + _FAILED,
        _TO_LOOK,
        always=True,
    ),
    "no_task_ended": Words(
        "in the last 10 minutes, no task of type {subject} has ended" + _FAILED, _TO_LOOK, always=True
    ),
    "full_mailbox": Words(
        "run {subject} of type {type} has {signals} signals of {bytes} bytes that it has not taken, and at "
        "most {max_signals} of {max_bytes} bytes are kept",
        "Further ones are refused. What it waits for: holdfast runs show {subject}. To end it: holdfast "
        "cancel {subject}",
    ),
    "failing_step": Words(
        "{value:a step|# steps} of runs of type {subject} {value:fails|fail}; longest, {step} has failed "
        "{tried}[ of {tries}] {tried:try|tries}, for {seconds:span}; its next try is due[ in {due_in:span}]",
        _RETRIED
        + " To see why it fails: holdfast why {task_id}. All: holdfast runs list --type {subject:shell}",
    ),
    "run_not_read": Words(
        "run {subject} of type {type} has a problem (run_not_read): the server cannot read what it remembers"
        + _RUN,
        f"{_RETRIED} {_LOGS}",
    ),
    "step_not_stored": Words(
        "run {subject} of type {type} has a problem (step_not_stored): the server cannot store a step of it"
        + _RUN,
        f"{_RETRIED} {_LOGS}",
    ),
    "children_not_started": Words(
        "run {subject} of type {type} has a problem (children_not_started): the server cannot start the "
        "tasks that it starts" + _RUN,
        f"{_RETRIED} Look for a transaction that stays open and holds an idempotency key. {_LOGS}",
    ),
    "run_throttled": Words(
        "run {subject} of type {type} has a problem (run_throttled): its child process has to wait because "
        "it writes too much to its worker" + _RUN,
        f"It goes on slowly. Let it record fewer steps, or report progress less often. {_LOGS}",
    ),
    "envelope_malformed": Words(
        "task {subject} of type {type} wrote what is no message to its worker (envelope_malformed), "
        "{value:span} ago",
        "Its handler must not write to the descriptor of the worker, nor a command print anything but its "
        "envelope. What it did: holdfast why {subject}",
    ),
}

_SILENCE = "worker {subject} on {hostname}[ (pid {pid})] "

_WORKERS = {
    "workers": Words("{value:# live worker|# live workers}"),
    "no_workers": Words("0 live workers", "Start one: holdfast worker", always=True),
    "no_leader": Words(
        "there is no leader: schedules do not fire, and silent workers are not removed before their leases "
        "end",
        "Look for lead_refused and duty_failed in the logs of the workers.",
    ),
    "no_expired_leases": Words("no lease has ended without a report"),
    "expired_leases": Words(
        "{value:# lease|# leases} ended without a report, the first {seconds:span} ago",
        "Any worker sweeps them: start one, or call queues.sweep().",
        always=True,
    ),
    "no_chores": Words("the engine has nothing left to do"),
    "chores": Words(
        "{value:# chore|# chores} of the engine (runs to wake, tasks to cancel) {value:waits|wait}, the "
        "first for {seconds:span}",
        "The leader does them. Look for a transaction that stays open and holds such a task, and for "
        "chore_failed in the logs of the workers.",
        always=True,
    ),
    "chores_failed": Words(
        "{value:# chore|# chores} of the engine (runs to wake, tasks to cancel) {value:waits|wait}, the "
        "first for {seconds:span}",
        "Some failed, and are tried again after the others. Repair what the error names.",
        always=True,
    ),
    "silent_worker": Words(
        _SILENCE
        + "has been silent for {value:span}, and held {in_flight:# task|# tasks} at its last heartbeat",
        "The leader recovers its tasks and removes it. If it stays, check whether there is a leader, and "
        "see its log.",
    ),
    "late_worker": Words(
        _SILENCE
        + "sends a heartbeat every {heartbeat:span}, and the last one came {value:span} ago; it held "
        "{in_flight:# task|# tasks} then",
        "Check whether it still runs. After {timeout:span} of silence, other workers get its tasks.",
    ),
    "lost_worker": Words(
        "worker {subject} on {hostname} was lost {value:span} ago; {recovered} of its tasks went back to "
        "the queue, and {dead} ended",
        "Find out why it ended: its log, the memory of its machine, the limits of its container.",
    ),
    "no_handler": Words(
        "no live worker has a handler for {subject}: {value:# task was|# tasks were} postponed within the "
        "last ten minutes",
        "Start a worker with the application that declares it; else they fail. If the name is wrong, cancel "
        "them.",
    ),
}

_OF = "schedule {subject} of namespace {namespace} "
_NAMED = " {subject:shell} --namespace {namespace:shell}"

_SCHEDULES = {
    "misplaced_schedule": Words(
        _OF + "is on shard {shard} and does not fire: schedules are on the first shard",
        f"Remove it with the address of {{shard}}: holdfast schedules remove{_NAMED} --database-url …",
    ),
    "late_schedule": Words(
        _OF + "should have fired {value:span} ago",
        "The leader fires it: check whether there is a leader (holdfast workers), and look for duty_failed "
        "in its log.",
    ),
    "orphaned_schedule": Words(
        _OF + "is no longer in the code of {declared_by}, and does not fire",
        f"If it is not needed: holdfast schedules remove{_NAMED}",
    ),
    "paused_schedule": Words(
        _OF + "was paused by {by}[ because: {reason}]", f"To resume: holdfast schedules resume{_NAMED}"
    ),
    "broken_schedule": Words(_OF + "does not fire", "Fix it in the code, or remove it and add it again."),
    "repeated_schedule": Words(
        "{declared_by} declares schedule {subject} in {value} namespaces, and each of them fires: "
        "{namespaces:list}",
        "If this is one application, let its logins share a namespace (holdfast namespaces add) and remove "
        "the others.",
    ),
}

_WAIT = "{pending:# event waits|# events wait} for subscription {subject}, the oldest for {value:span}"
_INSTANCE = (
    " holdfast process show {subject:shell} {process_id:shell} shows more. To end it: holdfast process "
    "cancel {subject:shell} {process_id:shell}"
)

_OUTBOX = {
    "subscription_unusable": Words(
        "the dispatcher on {hostname} cannot serve subscription {subject}",
        "Fix the problem and restart the dispatcher, or remove the subscription and add it again.",
    ),
    "events_delivered": Words("subscription {subject} has all its events"),
    "events_paused": Words(
        _WAIT + "; it is paused", "To resume: holdfast events resume {subject:shell}", always=True
    ),
    "no_dispatcher": Words(
        _WAIT + "; no dispatcher is live", "Start a dispatcher: holdfast dispatch", always=True
    ),
    "receiver_fails": Words(
        _WAIT + "; its receiver fails those of namespace {namespace}",
        "Fix its receiver; delivery is retried automatically.",
        always=True,
    ),
    "events_wait": Words(_WAIT, "Run more dispatchers, or make the receiver faster."),
    "dead_events": Words(
        "{value:# event|# events} for subscription {subject} {value:was|were} given up",
        "Once its receiver works again: holdfast events redrive {subject:shell}",
    ),
    "orphaned_process": Words(
        "{instances:#|#} of process {subject} without a supervisor task, the first for {value:span}: "
        "{process_id}",
        "The leader enqueues it again; if it stays, look for duty_failed in its log." + _INSTANCE,
    ),
    "failing_supervisor": Words(
        "{instances:#|#} of process {subject} with a supervisor that fails, the first for {value:span}: "
        "{process_id}",
        "It is retried; fix the function or its grants." + _INSTANCE,
    ),
}

_RETENTION = "{value:#|#} {subject} {value:task|tasks} should have been deleted more than "
_PRUNING = (
    "The leader deletes them: check whether there is one, and look for duty_failed in its log. holdfast "
    "prune deletes them at once."
)
_HELD = " has held a snapshot for {value:span}"
_END = " End it in its application, or: select pg_terminate_backend({pid})"
_FULL = (
    "A session listens and stays in a transaction. [To see which: grant pg_read_all_stats to {hidden_from}. "
    "][End it: select pg_terminate_backend({pid}). ]Set idle_in_transaction_session_timeout for its login. "
    "When the queue is full, commits of other applications that notify fail."
)
_OLDEST = "[; the oldest transaction is that of session {pid} of {login}, for {seconds:span}]"

_SERVER = {
    "retention_late": Words(_RETENTION + "an hour ago", _PRUNING),
    "retention_very_late": Words(_RETENTION + "a day ago", _PRUNING),
    "missing_grant": Words(
        "members of {subject} lack the rights of {role}", "Have a DBA run: grant {role} to {subject};"
    ),
    "clock_set_back": Words(
        "the clock of the database server was set back: the newest heartbeat or sample is {value:span} in "
        "its future",
        "Until the clock is there, silent workers look alive, and times in lists are wrong. Check how the "
        "server sets its clock, and restart the workers.",
    ),
    "session_snapshot": Words("session {pid}[ of {login}]" + _HELD + "[: {state}]", f"{_REMOVAL}.{_END}"),
    "prepared_snapshot": Words(
        "prepared transaction {name}[ of {login}]" + _HELD,
        _REMOVAL + ": commit prepared {name:literal}, or roll it back.",
    ),
    "slot_snapshot": Words(
        "replication slot {name}" + _HELD + "[: in use by pid {pid}]",
        _REMOVAL + ". Check its standby, or drop the slot.",
    ),
    "hidden_sessions": Words(
        "health cannot see what sessions of other logins do",
        "To see it: grant pg_read_all_stats to {hidden_from}",
        always=True,
    ),
    "dead_rows": Words(
        "queues.{subject} has {value} dead rows beside {live} live ones",
        _LATE + "Look for the oldest snapshot, then whether autovacuum runs: pg_stat_all_tables.",
    ),
    "notification_queue": Words("{value:percent} of the queue of notifications is in use" + _OLDEST, _FULL),
    "notification_queue_half_full": Words(
        "{value:percent} of the queue of notifications is in use: Holdfast sends none, so workers, "
        "dispatchers and callers poll" + _OLDEST,
        _FULL,
    ),
    "transaction_ids": Words(
        "the oldest transaction id is {transactions:millions} million back, the oldest multixact "
        "{multixacts:millions} million; at 2100 million the server stops",
        "Look for the oldest snapshot, let autovacuum run, or: vacuum (freeze)",
    ),
    "size": Words("all tables and indexes take {value:size}"),
    "growth": Words(
        "they grow by {value:size} per day", "Keep finished tasks for a shorter time: see retention."
    ),
    "growth_unknown": Words("growth is known after a leader has run for an hour"),
}

_SHARDS = {
    "shard_grants": Words(
        "shard {subject} lacks grants that the front has: {grants}. Calls of these logins fail on it",
        "Run holdfast grant for each login, or holdfast shards check for the whole list.",
    ),
    "shard_lost": Words(
        "shard {subject} cannot be reached",
        "Its tasks wait until it is back; the other shards go on. Start it, or promote its standby and "
        "change its address.",
    ),
}

_LOGINS = {
    "may_not_read_health": Words("this login may not read health", "{advice}"),
    "may_not_enqueue": Words("the login of this server may not enqueue tasks", "{advice}"),
}

HEALTH = {**_QUEUES, **_TASKS, **_WORKERS, **_SCHEDULES, **_OUTBOX, **_SERVER, **_SHARDS, **_LOGINS}
"""By code. Beside the facts, each line has its `subject` and its `value`."""


def health_words(code: str, level: str, subject: str | None, value: float | None, facts: Facts) -> Wording:
    known: dict[str, Any] = {**facts, "subject": subject, "value": value}
    if facts.get("causes"):
        causes = [cause(one) for one in facts["causes"]]
        known |= {"first_cause": causes[0], "all_causes": "; ".join(causes)}
    words, wording = HEALTH.get(code), put(HEALTH, code, known)
    return Wording(wording.message, None) if words and level == "green" and not words.always else wording
