"""All histories of the lease protocol: none breaks a rule, and with one rule less some history does."""

import pytest

from acceptance.lease_model import Machine, Rules, walk
from acceptance.trial import sized, tell, trial

CLAIMS = 3


@trial("P3", "P4", quick=True)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("attempts", sized([2], [2], [1, 2, 3]))
def test_no_history_of_the_lease_protocol_breaks_a_rule(attempts: int) -> None:
    found = walk(Machine(Rules(), max_attempts=attempts, most_claims=CLAIMS))
    tell(
        f"{found.states} states, {found.steps} steps, up to {CLAIMS} claims: {found.broken or 'none broken'}"
    )
    assert found.broken == "", found.history
    assert found.states > 1000


@trial("P3", "P4", quick=True)
@pytest.mark.parametrize(
    ("rules", "broken"),
    [
        (Rules(asks_for_the_token=False), "an older claim was heard after a newer one"),
        (Rules(counts_at_the_claim=False), "it ran more often than it may"),
        (Rules(sweeps_only_what_is_leased=False), "a task that had ended changed"),
        (Rules(skips_tokens_after_a_crash=False), "a token was issued twice"),
        (Rules(keeps_ends=False), "a task that had ended changed"),
    ],
    ids=["no token", "counted at the end", "stale sweep", "tokens forgotten", "late reports heard"],
)
def test_without_one_of_its_rules_some_history_breaks(rules: Rules, broken: str) -> None:
    found = walk(Machine(rules, max_attempts=2, most_claims=CLAIMS))
    tell(f"{found.broken}: {', '.join(found.history)}")
    assert found.broken == broken
