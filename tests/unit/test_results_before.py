"""What `ctx.after` returns while a task before this one is open again."""

import pytest

from holdfast._workflows.children import Children
from holdfast._workflows.joins import results_before
from holdfast.errors import StepResultMismatch


@pytest.mark.parametrize(
    "children",
    [
        Children(
            2, "[7]", {"open": 1, "others": [[2, "019a0000-0000-7000-8000-000000000000", "open", None]]}
        ),
        Children(200, None, {"open": 1}),
    ],
)
def test_a_task_that_was_retried_has_no_result_yet(children: Children) -> None:
    with pytest.raises(StepResultMismatch, match="it was retried"):
        results_before(children, ())
