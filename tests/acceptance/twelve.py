"""The shape of the run `acceptance.twelve`: twelve facts of every kind."""

FACTS = 12
SLEEP, WAIT = 5, 8
TRANSACTIONS, IN_THREAD = (3, 7, 11), (2, 10)


def fact_name(n: int) -> str:
    if n in (SLEEP, WAIT, *TRANSACTIONS):
        return f"fact-{n}"
    return f"act_in_thread[{n}]" if n in IN_THREAD else f"act[{n}]"
