"""The tests of tests/app/test_enqueue.py, on a front."""

from support.contract import borrow

globals().update(
    borrow(
        "app/test_enqueue",
        differences={
            "test_many_are_all_or_nothing": "enqueue_many is all or nothing per shard",
            "test_a_refusal_far_back_names_its_place_and_leaves_nothing_behind": "the same",
        },
    )
)
