"""The README, tutorials and guides run as printed, from their first block to their last."""

import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.documents import DOCS, ROOT, name_of
from support.server import disposable_home
from support.walkthrough import Step, agree, empty_machine, put_into, steps, walking

BIN = Path(sys.executable).parent


@pytest.fixture
def machine() -> Iterator[dict[str, str]]:
    """A machine on which Holdfast is installed and has not been used yet."""
    with disposable_home() as home:
        environment = empty_machine(HOLDFAST_HOME=str(home), HOLDFAST_WEB_PORT="0")
        yield environment | {"PATH": f"{BIN}:{environment['PATH']}"}


PAGES = [
    ROOT / "README.md",
    *(
        pytest.param(DOCS / page, marks=pytest.mark.full)
        for page in (
            "tutorial/first-task.md",
            "tutorial/email-and-process.md",
            "howto/cancel-and-time-out.md",
            "howto/enqueue-tasks.md",
            "howto/keep-the-database-small.md",
            "howto/route-tasks.md",
            "howto/share-clients-and-report-errors.md",
        )
    ),
]
LOGGED = {
    "cancel-and-time-out.md": [
        "closed the file",
        "saved the rows so far",
        *(rf"task_stopped.*reports\.{name}.*cancelled" for name in ("download", "count", "render")),
    ],
    "share-clients-and-report-errors.md": [
        r"charging.*task_id.*billing\.charge",
        *(rf"reported ConnectionError of billing\.{name}.*task_id" for name in ("charge", "check")),
    ],
}
"""What these pages say that their worker logs."""
MORE_PAGES = [DOCS / "tutorial" / "order-payment-shipment.md"]
"""For a release. What it shows is tested more quickly elsewhere."""


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "page", [*PAGES, *(MORE_PAGES if os.environ.get("HOLDFAST_RELEASE") else [])], ids=name_of
)
def test_a_page_runs_as_printed(page: Path, machine: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")  # the README is followed in a clone
    with walking(tmp_path, machine) as walk:
        if page.parent.name == "howto":  # for those who have a database
            walk.run("holdfast migrate")
        walk.follow(page)
        for line in LOGGED.get(page.name, []):
            _await_log(tmp_path, line)


def _await_log(directory: Path, pattern: str) -> None:
    deadline = time.monotonic() + 20
    while not re.search(pattern, logs := "".join(log.read_text() for log in directory.glob(".log-*"))):
        assert time.monotonic() < deadline, f"{pattern} is not in\n{logs}"
        time.sleep(0.2)


def test_a_dialogue_is_commands_and_what_they_print() -> None:
    assert steps("```console\n$ date\nnow\n$ true\n```\n") == [
        Step("sh", "date\n", None, "now\n"),
        Step("sh", "true\n"),
    ]


def test_a_block_of_output_belongs_to_the_commands_before_it() -> None:
    page = "```sh\ndate\n```\n\n```text\nnow\n```\n\n"
    page += "<!-- test: install -->\n```sh\nmake\n```\n<!-- test: stop -->\n"
    assert steps(page) == [
        Step("sh", "date\n", None, "now\n"),
        Step("sh", "make\n", "install"),
        Step("", "", "stop"),
    ]


@pytest.mark.parametrize(
    ("wanted", "printed"),
    [
        ("a\nb\n", "a\nb\n"),
        ("a …\n", "a 7 s\n"),
        ("a\n…\nz\n", "a\nb\nc\nz\n"),
        ("…\nz\n", "z\n"),
        ("a b\n", "a   b  \n"),
    ],
)
def test_what_varies_is_allowed_to(wanted: str, printed: str) -> None:
    assert agree(wanted, printed)


@pytest.mark.parametrize(
    ("wanted", "printed"),
    [("a\n", "b\n"), ("a\n", "a\nb\n"), ("a …\n", "b 7 s\n"), ("a\n…\nz\n", "a\nb\n"), ("a.c\n", "abc\n")],
)
def test_what_does_not_vary_is_not(wanted: str, printed: str) -> None:
    assert not agree(wanted, printed)


def test_a_function_that_is_printed_again_takes_the_place_of_the_first() -> None:
    file = "import os\n\n\ndef a():\n    return 1\n\n\ndef b():\n    return 2\n"
    assert put_into(file, "# x.py\nx = 3\n\n\ndef a():\n    return x\n").splitlines() == [
        *(
            "import os",
            "",
            "",
            "x = 3",
            "",
            "",
            "def a():",
            "    return x",
            "",
            "",
            "def b():",
            "    return 2",
        ),
    ]
    assert put_into("a = 1\n", "# x.py\nb = 2\n") == "a = 1\n\n\nb = 2\n"
