"""The pages about workflows are projects, and their tests pass as printed."""

from pathlib import Path

import pytest

from holdfast.postgres import EmbeddedServer
from support.documents import DOCS, code, name_of

PAGES = [
    DOCS / "tutorial" / "workflow.md",
    DOCS / "howto" / "approvals.md",
    DOCS / "howto" / "saga-compensation.md",
    DOCS / "howto" / "agents.md",
]


@pytest.mark.full
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_tests_of_a_page_pass_as_printed(
    page: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, server: EmbeddedServer
) -> None:
    monkeypatch.setenv("HOLDFAST_TEST_DATABASE_URL", server.url("postgres"))
    blocks = code(page.read_text(), "python")
    for block in blocks:
        with Path(block.splitlines()[0].removeprefix("# ")).open("a") as file:
            file.write(f"{block}\n")
    pytester.makeini("[pytest]\nfilterwarnings = error\nasyncio_default_fixture_loop_scope = function\n")
    tests = sum(line.startswith("def test_") for line in "".join(blocks).splitlines())
    pytester.runpytest_subprocess().assert_outcomes(passed=tests)
