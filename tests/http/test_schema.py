"""schemathesis over the description of the API, with all of its checks."""

import os
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings

from holdfast.http import create_app
from holdfast.settings import Settings
from support.web import Web

FULL = os.environ.get("HOLDFAST_ACCEPTANCE") == "full"
EXAMPLES = 200 if FULL else 10

# A schema cannot say that no text may hold NUL, however deep in a payload: that is refused with 422.
CONFIG = schemathesis.Config.from_dict(
    {
        "checks": {
            "positive_data_acceptance": {
                "expected-statuses": ["2xx", "3xx", "401", "403", "404", "409", "412", "422", "429"]
            }
        }
    }
)
DESCRIBED = schemathesis.openapi.from_dict(
    create_app(settings=Settings.load(database_url="postgresql://nobody@nowhere/nothing")).openapi(),
    config=CONFIG,
)
OPERATIONS: dict[str, Any] = {}
for found in DESCRIBED.get_all_operations():
    operation: Any = found.ok()  # type: ignore[union-attr] # a description that cannot be read fails here
    OPERATIONS[operation.label] = operation


@pytest.mark.parametrize("label", sorted(OPERATIONS))
def test_every_answer_is_one_that_is_described(web: Web, label: str) -> None:
    headers = {"Authorization": f"Bearer {web.token('admin')}"}

    @given(case=OPERATIONS[label].as_strategy())
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def ask(case: Any) -> None:
        if case.path.endswith("/wait"):
            case.query = {**(case.query or {}), "timeout": 0}
        case.call_and_validate(base_url=web.url, headers=headers)

    ask()
