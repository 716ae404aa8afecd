"""Calls of an application: batches of concurrent callers, pools, deadlines, transactions of the caller."""

from planted.bug import Bug

BUGS = [
    Bug(
        "callers without a schema send two statements each",
        "_connections/enqueueing.py",
        "        if len(batch) > 1 and what_is_wrong(error) is About.ITEM:",
        "        if len(batch) > 1:",
        "tests/app/test_batcher.py",
    ),
    Bug(
        "concurrent callers get the same exception object",
        "_connections/enqueueing.py",
        "answer.set_exception(own_copy(error))",
        "answer.set_exception(error)",
        "tests/app/test_batcher.py",
    ),
    Bug(
        "a missing right is looked for in each item of a batch",
        "_connections/acknowledged.py",
        "    if is_missing_right(error) or state == _TOO_MANY_CONNECTIONS:",
        "    if state == _TOO_MANY_CONNECTIONS:",
        "tests/app/test_acknowledged.py",
    ),
    Bug(
        "a conflict is looked for in each item of a batch",
        "_connections/acknowledged.py",
        "    if about is About.CONFLICT and failure.tries == 1:",
        "    if False:",
        "tests/app/test_acknowledged.py",
    ),
    Bug(
        "a wait takes what was read before it began",
        "_connections/waiting.py",
        "        return self.watched.query > self.since",
        "        return self.watched.query > 0",
        "tests/app/test_waiting.py",
    ),
    Bug(
        "a loop that fails leaves those that wait behind",
        "_connections/waiting.py",
        "self._tell_all(UnexpectedDatabaseError(f",
        "str(UnexpectedDatabaseError(f",
        "tests/app/test_waiting.py",
    ),
    Bug(
        "a call waits for ever for a proxy that never answers",
        "_connections/pool.py",
        "        elif time.monotonic() >= until:",
        "        elif False:",
        "tests/app/test_call_timeout.py",
    ),
    Bug(
        "a call that the client gave up keeps running on the server",
        "_connections/pool.py",
        "  then set_config('statement_timeout', '{milliseconds}ms', false) end",
        "  then set_config('statement_timeout', '0', false) end",
        "tests/app/test_call_timeout.py",
    ),
    Bug(
        "calls of an event loop wait behind a large batch",
        "_connections/client.py",
        "AsyncPool(address, POOL_SIZE, ",
        "AsyncPool(address, 1, ",
        "tests/app/test_pool.py::test_calls_of_an_event_loop_do_not_wait_behind_a_large_batch",
    ),
    Bug(
        "callers wait for the key of another caller",
        "_connections/client.py",
        "with_lock_limit(one_or_many(tasks), LOCK_MILLISECONDS)",
        "one_or_many(tasks)",
        "tests/app/test_pool.py::test_a_key_that_a_transaction_holds_delays_no_other_call_of_the_event_loop",
    ),
]
