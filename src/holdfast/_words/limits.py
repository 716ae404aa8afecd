"""What holds due tasks back: limits, rates and the transactions of others."""

from holdfast._words.template import Facts, Words, put

CAUSES = {
    "limit_reached": Words(
        "of {subject} {name} at most {max_running} may run at once, and that many run now"
    ),
    "key_limit_reached": Words(
        "of concurrency key {concurrency_key:json} of {subject} {name} at most {max_running} may run at "
        "once, and that many run now"
    ),
    "key_limits_reached": Words(
        "{keys} concurrency keys of {subject} {name}, such as {concurrency_key:json}, run as many tasks at "
        "once as they may ({max_running})"
    ),
    "rate_used_up": Words(
        "{subject} {name} has used up its rate, which lets the next task start in {seconds:span}"
    ),
    "limit_locked": Words(
        "session {pid} of login {login} has claimed under its limit, or changed it, in a transaction that "
        "has been open for {seconds:span}; nothing else is claimed under it until that ends (end it in its "
        "application, or: select pg_terminate_backend({pid}))"
    ),
}


def cause(facts: Facts) -> str:
    """Returns one of the causes that the engine names, as part of a sentence."""
    return put(CAUSES, str(facts.get("code")), facts).message
