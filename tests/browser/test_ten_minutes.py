"""The first tutorial in ten minutes: a workflow whose step failed and was retried, seen on the dashboard."""

import re
import sys
import time
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from support.documents import DOCS, ROOT
from support.server import disposable_home
from support.walkthrough import Walk, empty_machine, walking

PROMISED_SECONDS = 600
SLOW = 30_000


@pytest.fixture(params=["clone", pytest.param("nothing", marks=pytest.mark.release)])
def newcomer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Walk]:
    """In an empty directory: with what `make up` has built, or beside a clone with nothing installed."""
    here = tmp_path / "empty"
    here.mkdir()
    (tmp_path / "holdfast").symlink_to(ROOT)
    programs = Path(sys.executable).parent
    if request.param == "nothing":
        venv.create(tmp_path / "python", with_pip=True)
        programs = tmp_path / "python" / "bin"
    with disposable_home() as home:
        machine = empty_machine(HOLDFAST_HOME=str(home), HOLDFAST_WEB_PORT="0")
        machine["PATH"] = f"{programs}:{machine['PATH']}"
        with walking(here, machine, installing=request.param == "nothing") as walk:
            yield walk


@pytest.mark.full
@pytest.mark.timeout(PROMISED_SECONDS)
def test_a_newcomer_sees_a_step_that_failed_and_was_retried_within_ten_minutes(
    newcomer: Walk, browser: Browser, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    newcomer.follow(DOCS / "tutorial" / "first-task.md", until="## Clean up")
    printed = "".join(log.read_text() for log in newcomer.directory.glob(".log-*"))
    [address] = re.findall(r"http://127\.0\.0\.1:\d+/login#hf_\S+", printed)
    page = browser.new_page()
    page.goto(address)
    page.wait_for_url("**/")
    page.get_by_role("link", name="Tasks", exact=True).first.click()
    page.get_by_role("row").filter(has_text="orders.fulfil").get_by_role("link").first.click()
    drawn = page.get_by_role("list", name="Attempts and steps")
    for name in ("charge", "approval"):
        expect(drawn.get_by_text(name, exact=True)).to_be_visible(timeout=SLOW)
    assert drawn.locator(".tick").count() >= 1, "no failed try is drawn"
    expect(page.get_by_text("succeeded").first).to_be_visible(timeout=SLOW)
    page.screenshot(path=pictures / "ten-minutes.png", full_page=True)
    page.close()
    took = time.monotonic() - began
    with capsys.disabled():
        print(f"\nFrom nothing to a retried step on the dashboard: {took:.0f} s")  # noqa: T201 - the figure
