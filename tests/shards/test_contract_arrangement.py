"""The tests of tests/app/test_arrangement.py, on a front."""

from support.contract import borrow

globals().update(
    borrow(
        "app/test_arrangement",
        differences={"test_a_batch_is_enqueued_in_one_transaction": "tx is refused on a front"},
    )
)
