"""The words of an explanation: why a task is not running now."""

from holdfast._words.limits import CAUSES
from holdfast._words.template import Facts, Wording, Words, put

_BECAUSE = "[ because: {reason}]"
_ATTEMPT = "attempt {attempt} of {max_attempts}"
_LEASED = f"leased by worker {{worker_id}} until {{lease_until:moment}} ({_ATTEMPT})."
_EVENT = "Its event {event_type} waits for subscription {subscription} since {since:moment}: "
_CAUSE = "Retry it once the cause is fixed."
_DUE = "It is due and waits for one of {workers:# live worker|# live workers}; "
_STARTS = {
    "limit_reached": ". It starts when one of them ends.",
    "key_limit_reached": ". It starts when one of them ends.",
}

_ENDS = {
    "unknown": Words(
        "There is no task[ {task_id}]: the id is wrong, retention has removed it, it belongs to another "
        "namespace, or the transaction that enqueues it is still open."
    ),
    "deleted": Words(f"It was deleted at {{at:moment}} by {{by}}{_BECAUSE}. Restore it to let it continue."),
    "succeeded": Words(f"It succeeded at {{at:moment}}, on {_ATTEMPT}."),
    "failed": Words(f"It failed at {{at:moment}}, on {_ATTEMPT}, and is not retried. {_CAUSE}"),
    "dead_letter": Words(
        f"Its attempts were used up at {{at:moment}} ({{attempt}} of {{max_attempts}}). {_CAUSE}"
    ),
    "cancelled": Words(f"It was cancelled at {{at:moment}}{_BECAUSE}. Retry it to let it run after all."),
    "event_paused": Words(_EVENT + "it is paused."),
    "event_failed": Words(_EVENT + "delivery failed."),
    "event_receiver_fails": Words(_EVENT + "its receiver fails."),
    "event_without_dispatcher": Words(_EVENT + "no dispatcher is live."),
    "event_being_sent": Words(_EVENT + "dispatcher {dispatcher} is sending it."),
    "event_behind_others": Words(_EVENT + "others come before it."),
}

_HELD = {
    "running": Words(f"It is running, {_LEASED}"),
    "claimed": Words(f"It is claimed and about to run, {_LEASED}"),
    "running_unheard": Words(f"It was running at the last heartbeat, {_LEASED}"),
    "claimed_unheard": Words(f"It is claimed, {_LEASED}"),
    "lease_ended": Words("The lease has ended, so the next sweep makes it ready again."),
    "worker_dead": Words("That worker has been silent for {silent:span}, so the leader will recover it."),
    "worker_silent": Words(
        "That worker has been silent for {silent:span}: if it stays silent, other workers get the task at "
        "{recovered_at:moment}."
    ),
    "step_retried": Words("Step {step} failed (try {tried}[ of {tries}]); next try at {retry_at:moment}."),
    "step_due": Words(
        "Step {step} failed (try {tried}[ of {tries}]); its next try is due since {retry_at:moment}."
    ),
    "deadline": Words("It has to end by {at:moment}."),
    "schedule_waits": Words("Until it has ended, schedule {schedule} skips its times: {skipped} so far."),
}

_WAITS = {
    "waits_for_signal": Words(
        "It waits for the signal {signal} until {until:moment}.",
        "Send it with: holdfast runs signal {task_id} {signal:shell} JSON",
    ),
    "comes_after": Words("It comes after task {task_id}, which is {status}."),
    "waits_for_children": Words(
        "It waits in {step} until {until:moment} for the children of that step; {ended} of {children:#|#} "
        "have ended, and task {task_id} is {status}."
    ),
    "waits_until": Words("It waits in {name} until {until:moment}."),
    "waits_for_more": Words("It waits for {more} more."),
    "postponed": Words("Worker {worker_id} has postponed it until {at:moment}."),
    "retried": Words("Attempt {attempt} of {max_attempts} failed; it is retried at {at:moment}."),
    "scheduled": Words("It is scheduled for {at:moment}."),
    "queue_paused": Words(
        f"Queue {{queue}} was paused at {{at:moment}} by {{by}}{_BECAUSE}. Resume it to let its tasks run."
    ),
    "no_worker": Words(
        "It is due, but no live worker subscribes to queue {queue} or to a prefix of type {type}. Start one."
    ),
    "task_locked": Words(
        "It is due, but session {pid} of login {login} has changed or locked it in a transaction that has "
        "been open for {seconds:span}. Claims skip it until that ends: end it in its application, or: "
        "select pg_terminate_backend({pid})"
    ),
    "next_of_queue": Words(_DUE + "it is the next of its queue."),
    "behind_others": Words(_DUE + "{ahead:# of its queue comes|# of its queue come} before it."),
    "claims_slow": Words(
        "Claims may be slow: {kind} {name}[ of {login}] has held a snapshot for {seconds:span}, which keeps "
        "{dead_rows} dead rows from being removed."
    ),
}

_LIMITS = {
    code: Words(f"It is due, but {words.message}{_STARTS.get(code, '.')}") for code, words in CAUSES.items()
}

EXPLANATION = {**_ENDS, **_HELD, **_WAITS, **_LIMITS}
"""By code."""


def explanation_words(code: str, facts: Facts) -> Wording:
    return put(EXPLANATION, code, facts)
