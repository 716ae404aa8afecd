"""The tests of tests/app/test_handle.py, on a front."""

from support.contract import borrow

globals().update(
    borrow(
        "app/test_handle",
        differences={
            "test_a_task_of_an_open_transaction_cannot_be_waited_for": "tx is refused on a front",
        },
    )
)
