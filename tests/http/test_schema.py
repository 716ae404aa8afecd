"""schemathesis on the OpenAPI document, with all of its checks."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode

from holdfast.server import create_app
from holdfast.settings import Settings
from support.web import Web

FULL = os.environ.get("HOLDFAST_ACCEPTANCE") == "full"
EXAMPLES = 100 if FULL else 6
MODES = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE] if FULL else [GenerationMode.POSITIVE]

# A schema cannot express that no string of a payload may contain NUL: that is rejected with 422.
# Unknown query parameters are ignored, so they alone do not make a request invalid.
CONFIG = schemathesis.Config.from_dict(
    {
        "generation": {"allow-extra-parameters": False},
        "checks": {
            "positive_data_acceptance": {
                "expected-statuses": ["2xx", "3xx", "401", "403", "404", "409", "412", "422", "429"]
            }
        },
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


@pytest.mark.filterwarnings(
    "ignore:Do not use the `random` module:hypothesis.errors.HypothesisDeprecationWarning"
)
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize("label", sorted(OPERATIONS))
def test_every_response_is_documented(web: Web, label: str, mode: GenerationMode) -> None:
    headers = {"Authorization": f"Bearer {web.token('admin')}"}

    @given(case=OPERATIONS[label].as_strategy(generation_mode=mode))
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

    try:
        ask()
    except Unsatisfiable:
        assert mode is GenerationMode.NEGATIVE
        pytest.skip("it takes nothing that could be wrong")


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_the_schemathesis_command_finds_nothing(web: Web, tmp_path: Path) -> None:
    """The command line, which also tries undocumented methods and sequences of calls."""
    command = [
        str(Path(sys.executable).with_name("schemathesis")),
        *("run", f"{web.url}/openapi.json", "--checks", "all", "--max-examples", "30", "--no-color"),
        *("--header", f"Authorization: Bearer {web.token('admin')}"),
        *("--exclude-path-regex", "(wait|stream)$"),  # which would block
    ]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-5000:]
