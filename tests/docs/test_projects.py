"""Pages that are projects: their files are written as printed, and their tests pass."""

from pathlib import Path

import pytest

from holdfast._install.postgres.embedded_server import EmbeddedServer
from support.documents import DOCS, code, name_of

# They have tests of their own: they need a Django project, and the command that installs the page.
OTHERS = {DOCS / "howto" / "use-django.md", DOCS / "skill.md"}
PAGES = [
    page for page in sorted(DOCS.rglob("*.md")) if "\n# test_" in page.read_text() and page not in OTHERS
]


def test_the_pages_are_found() -> None:
    assert DOCS / "howto" / "test-your-tasks.md" in PAGES
    assert DOCS / "tutorial" / "workflow.md" in PAGES


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
    if not Path("conftest.py").exists():
        pytester.makeconftest('pytest_plugins = ["holdfast.testing"]')
    pytester.makeini("[pytest]\nfilterwarnings = error\nasyncio_default_fixture_loop_scope = function\n")
    tests = sum(line.startswith(("def test_", "async def test_")) for line in "".join(blocks).splitlines())
    pytester.runpytest_subprocess().assert_outcomes(passed=tests)
