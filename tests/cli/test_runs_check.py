"""Code that changes while runs are suspended: what each change does, and what `runs check` finds."""

import json
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from holdfast.testing import Sandbox
from support.commands import Holdfast
from support.database import Database

OLD = """
    a = await ctx.step(charge)
    b = await ctx.step(pack)
    answer = await ctx.wait("decision", str)
    return f"{a} {b} {answer}"
"""
HEAD = """
from holdfast import App, Context

app = App()
done = []

async def charge() -> int:
    done.append("charge")
    return 1

async def pack() -> str:
    done.append("pack")
    return "box"

async def weigh() -> int:
    done.append("weigh")
    return 5

async def charge_by_card() -> int:
    done.append("charge_by_card")
    return 2

async def label() -> str:
    done.append("label")
    return "label"

@app.task("shop.fulfil")
async def fulfil(ctx: Context) -> object:
"""


class Deployments:
    """Deploys the handler with one body after the other, while its runs stay."""

    def __init__(self, directory: Path, dsn: str, holdfast: Holdfast) -> None:
        self.sandbox = Sandbox(dsn)
        self._directory = directory
        self._holdfast = holdfast
        self._names = (f"deployed_{uuid4().hex}" for _ in range(9))
        self._name = ""

    def deploy(self, body: str, head: str = HEAD) -> Any:
        self._name = next(self._names)
        (self._directory / f"{self._name}.py").write_text(head + body)
        return import_module(self._name)

    def check(self, *options: str) -> tuple[int, list[tuple[str, str | None]]]:
        """The exit code, and what was found."""
        done = self._holdfast("runs", "check", f"{self._name}:app", "--json", *options)
        return done.exit_code, [(one["problem"], one["step"]) for one in json.loads(done.stdout)["findings"]]

    def check_as(self, url: str) -> str:
        return self._holdfast("runs", "check", f"{self._name}:app", "--database-url", url).output

    def suspend(self, body: str = OLD) -> UUID:
        """Deploy this, and let a run wait in it."""
        module = self.deploy(body)
        self.sandbox.use(module.app)
        handle = module.fulfil.enqueue()
        assert [ran.status for ran in self.sandbox.drain(module.app)] == ["suspended"]
        return UUID(str(handle.task_id))

    def resume(self, module: Any, task_id: UUID) -> tuple[Any, list[str]]:
        """What the run returns, and the steps that ran in this deployment."""
        self.sandbox.connect().execute("select queues.signal(%s, 'decision', '\"yes\"')", [task_id])
        *_, ran = self.sandbox.drain(module.app)
        return ran.result if ran.status == "succeeded" else ran.error, module.done


@pytest.fixture
def deployments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, db: Database, holdfast: Holdfast
) -> Iterator[Deployments]:
    monkeypatch.syspath_prepend(str(tmp_path))
    made = Deployments(tmp_path, db.dsn, holdfast)
    with closing(made.sandbox):
        yield made


def test_code_that_has_not_changed_fits(deployments: Deployments) -> None:
    task_id = deployments.suspend()
    module = deployments.deploy(OLD)
    assert deployments.check("--strict") == (0, [])
    assert module.done == []
    assert deployments.resume(module, task_id) == ("1 box yes", [])


def test_a_step_that_is_added_after_the_wait_runs_when_the_run_comes_to_it(deployments: Deployments) -> None:
    task_id = deployments.suspend()
    module = deployments.deploy(OLD.replace("    return", "    await ctx.step(label)\n    return"))
    assert deployments.check("--strict") == (0, [])
    assert deployments.resume(module, task_id) == ("1 box yes", ["label"])


def test_a_step_that_is_added_ahead_of_ended_ones_is_found_and_would_run_late(
    deployments: Deployments,
) -> None:
    task_id = deployments.suspend()
    module = deployments.deploy(OLD.replace("    b =", "    await ctx.step(weigh)\n    b ="))
    assert deployments.check() == (1, [("new_step", "weigh")])
    assert deployments.resume(module, task_id) == ("1 box yes", ["weigh"])


def test_a_step_that_is_added_behind_since_does_not_run_in_old_runs(deployments: Deployments) -> None:
    task_id = deployments.suspend()
    guarded = '    if ctx.since("weigh first"):\n        await ctx.step(weigh)\n    b ='
    module = deployments.deploy(OLD.replace("    b =", guarded))
    assert deployments.check("--strict") == (0, [])
    assert deployments.resume(module, task_id) == ("1 box yes", [])


def test_a_change_whose_name_no_worker_will_find_is_an_error(deployments: Deployments) -> None:
    deployments.suspend()
    guarded = '    if ctx.since("weigh " + str(a)):\n        await ctx.step(weigh)\n    b ='
    deployments.deploy(OLD.replace("    b =", guarded))
    assert deployments.check() == (1, [("raised", None)])


def test_a_step_that_is_removed_is_a_warning_and_its_result_is_not_used(deployments: Deployments) -> None:
    task_id = deployments.suspend()
    module = deployments.deploy(OLD.replace("    b = await ctx.step(pack)", "    b = None"))
    assert deployments.check() == (0, [("not_asked", "pack")])
    assert deployments.check("--strict") == (1, [("not_asked", "pack")])
    assert deployments.resume(module, task_id) == ("1 None yes", [])


def test_steps_that_are_reordered_keep_their_results(deployments: Deployments) -> None:
    task_id = deployments.suspend()
    lines = OLD.splitlines(keepends=True)
    module = deployments.deploy("".join([lines[0], lines[2], lines[1], *lines[3:]]))
    assert deployments.check("--strict") == (0, [])
    assert deployments.resume(module, task_id) == ("1 box yes", [])


def test_a_step_that_is_renamed_is_found_and_would_run_again(deployments: Deployments) -> None:
    task_id = deployments.suspend()
    module = deployments.deploy(OLD.replace("(charge)", "(charge_by_card)"))
    assert deployments.check() == (1, [("new_step", "charge_by_card")])
    assert deployments.resume(module, task_id) == ("2 box yes", ["charge_by_card"])


def test_a_result_that_does_not_fit_is_found_and_the_step_is_not_run_again(deployments: Deployments) -> None:
    task_id = deployments.suspend()
    module = deployments.deploy(OLD, HEAD.replace("charge() -> int", "charge() -> list[int]"))
    assert deployments.check() == (1, [("shape", "charge")])
    error, done = deployments.resume(module, task_id)
    assert ("StepResultMismatch" in error, done) == (True, [])


def test_arguments_that_do_not_fit_are_found(deployments: Deployments) -> None:
    deployments.suspend()
    deployments.deploy(OLD, HEAD.replace("fulfil(ctx: Context)", "fulfil(ctx: Context, order_id: int)"))
    assert deployments.check() == (1, [("arguments", None)])


def test_a_handler_that_raises_between_its_steps_is_found(deployments: Deployments) -> None:
    deployments.suspend()
    deployments.deploy(OLD.replace("    b =", "    a.lower()\n    b ="))
    assert deployments.check() == (1, [("raised", None)])


def test_steps_that_run_at_the_same_time_and_a_sleep_fit(deployments: Deployments) -> None:
    body = """
    import asyncio
    await ctx.step(charge)
    waits = ctx.sleep(3600, "nap"), ctx.wait("decision", str)
    return await asyncio.gather(*waits, ctx.step(pack), ctx.step(label))
"""
    deployments.suspend(body)
    deployments.deploy(body)
    assert deployments.check("--strict") == (0, [])


def test_plain_functions_are_checked_too(deployments: Deployments) -> None:
    plain = HEAD.replace("async def", "def").replace("Context", "SyncContext")
    body = OLD.replace("await ", "")
    module = deployments.deploy(body, plain)
    deployments.sandbox.use(module.app)
    module.fulfil.enqueue()
    assert [ran.status for ran in deployments.sandbox.drain(module.app)] == ["suspended"]
    assert deployments.check("--strict") == (0, [])
    deployments.deploy(body.replace("(charge)", "(charge_by_card)"), plain)
    assert deployments.check() == (1, [("new_step", "charge_by_card")])


def test_runs_that_have_ended_are_not_checked(deployments: Deployments) -> None:
    task_id = deployments.suspend()
    deployments.resume(deployments.deploy(OLD), task_id)
    deployments.deploy(OLD.replace("(charge)", "(charge_by_card)"))
    assert deployments.check() == (0, [])


def test_a_reader_may_check_and_sees_no_values(deployments: Deployments, db: Database) -> None:
    deployments.suspend()
    deployments.deploy(OLD, HEAD.replace("pack() -> str", "pack() -> int"))
    found = deployments.check_as(db.dsn_as("holdfast_reader"))
    assert "the result of pack does not fit its annotation" in found
    assert "box" not in found


CHILDREN = HEAD.replace(
    '@app.task("shop.fulfil")',
    """@app.task("shop.double")
def double(n: int) -> KIND:
    return 2 * n

@app.task("shop.fulfil")""",
)
JOINED = """
    doubled = await ctx.map(double, [1, 2])
    await ctx.step(pack)
    answer = await ctx.wait("decision", str)
    return f"{doubled} {answer}"
"""


@pytest.mark.parametrize(
    ("body", "kind", "found"),
    [
        (JOINED, "int", []),
        (JOINED, "dict", [("shape", "double")]),
        (JOINED.replace("[1, 2]", "[1, 2, 3]"), "int", [("shape", "double")]),
        (
            JOINED.replace("    await ctx.step(pack)", "    await ctx.step(label)"),
            "int",
            [("new_step", "label")],
        ),
        (JOINED.replace("    await ctx.step(pack)", "    doubled[7]"), "int", [("raised", None)]),
    ],
)
def test_a_replay_goes_on_with_what_children_have_returned(
    deployments: Deployments, body: str, kind: str, found: list[tuple[str, str | None]]
) -> None:
    module = deployments.deploy(JOINED, CHILDREN.replace("KIND", "int"))
    deployments.sandbox.use(module.app)
    module.fulfil.enqueue()
    *_, ran = deployments.sandbox.drain(module.app)
    assert (ran.status, module.done) == ("suspended", ["pack"])

    deployments.deploy(body, CHILDREN.replace("KIND", kind))
    assert deployments.check()[1] == found
