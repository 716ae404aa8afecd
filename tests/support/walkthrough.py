"""A page, followed as a reader would: CONTRIBUTING.md says what its blocks mean."""

import ast
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

SERVICE = re.compile(r"^holdfast (?:worker|serve|dispatch|up|dev)\b")
LOOK = re.compile(
    r"^holdfast (?:show|why|list|queues|workers|health|top"
    r"|(?:mailbox|process|runs|schedules) (?:list|show|plan|check))\b"
)
PATIENCE_SECONDS = 60.0

_STEP = re.compile(
    r"^<!-- test: (?P<order>[\w /.-]+?) -->$|^```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_PART = re.compile(r"part of (?P<file>[\w/.-]+)$")
_NAME = re.compile(r"^# (?P<name>[\w/.-]+\.\w+)\n")
_SHELL = """
set -eu -o pipefail -o allexport
. "$WALK_STATE"
cd "$(cat "$WALK_STATE.directory")"
{commands}
export -p >"$WALK_STATE"
pwd >"$WALK_STATE.directory"
"""


@dataclass(frozen=True, slots=True)
class Step:
    """One block of a page, with what the page says that it prints."""

    language: str
    code: str
    order: str | None = None
    printed: str | None = None

    @property
    def only_looks(self) -> bool:
        return all(LOOK.match(line) for line in self.code.splitlines())


def steps(text: str) -> list[Step]:
    found: list[Step] = []
    order: str | None = None
    for match in _STEP.finditer(text):
        if match["order"] == "stop":
            found.append(Step("", "", "stop"))
        elif match["order"]:
            order = match["order"]
        elif match["language"] == "text" and found and found[-1].language == "sh":
            found[-1] = Step("sh", found[-1].code, found[-1].order, match["code"])
        elif match["language"] == "console":
            found += _dialogue(match["code"])
        elif match["language"] != "text":
            found.append(Step(match["language"], match["code"], order))
            order = None
    return found


def _dialogue(text: str) -> list[Step]:
    """Commands behind `$`, each with what it prints; nothing is claimed of one that has no lines below it."""
    parts = [part.partition("\n") for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]]
    return [Step("sh", f"{command}\n", None, printed or None) for command, _, printed in parts]


def agree(wanted: str, printed: str) -> bool:
    """Whether a page is right about what was printed.

    What varies is written `…`: some of a line, or any number of lines. Columns may be wider or narrower.
    """
    pattern = ""
    for line in _lines(wanted):
        varying = r".*?".join(re.escape(part) for part in line.split("…"))
        pattern += r"(?:.*\n)*?" if line == "…" else rf"{varying}\n"
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in _lines(printed))) is not None


def _lines(text: str) -> list[str]:
    return [re.sub(r"[ \t]+", " ", line).strip() for line in text.rstrip().splitlines()]


class Refused(Exception):
    """A command ended with an exit code other than 0."""


@dataclass
class Walk:
    """A directory, a shell that remembers, and what runs in the background."""

    directory: Path
    environment: dict[str, str]
    installing: bool = False
    services: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def follow(self, page: Path, until: str = "\0") -> None:
        """From the first block, to the heading where the reader stops, or to the last block."""
        for step in steps(page.read_text().partition(f"\n{until}\n")[0]):
            if step.order == "stop":
                self.stop()
            elif step.order and (named := _PART.match(step.order)):
                assert step.code in (self.directory / named["file"]).read_text(), f"not in {named['file']}"
            elif not step.language or (step.order == "install" and not self.installing):
                continue  # a drawing, or what is there already
            else:
                self._take(step)

    def stop(self) -> None:
        """Ctrl-C, in every terminal where something runs."""
        for service in self.services:
            service.send_signal(signal.SIGINT)
        ended = [service.wait(timeout=PATIENCE_SECONDS) for service in self.services]
        assert ended == [0] * len(ended), self._logs()
        self.services.clear()

    def abandon(self) -> None:
        for service in self.services:
            service.kill()
            service.wait()

    def _take(self, step: Step) -> None:
        if step.language == "sh":
            self._run_block(step)
        elif step.language == "diff":
            self.run(f"patch --quiet --strip=0 <<'END_OF_PATCH'\n{step.code}END_OF_PATCH")
        elif named := _NAME.match(step.code):
            self._write(named["name"], step.code)
        else:
            raise AssertionError(f"no rule for this block:\n{step.code}")

    def _run_block(self, step: Step) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (problem := self._problem(step)) is not None:
            late = not step.only_looks or time.monotonic() > deadline
            assert not late, f"{step.code}\n{problem}\n{self._logs()}"
            time.sleep(1)  # as a reader would, and a look is dear: it starts a process

    def _problem(self, step: Step) -> str | None:
        try:
            printed = "".join(self._run_line_groups(step.code))
        except Refused as refused:
            return str(refused)
        if step.printed is None or agree(step.printed, printed):
            return None
        return f"printed\n\n{printed}\nand not\n\n{step.printed}"

    def _run_line_groups(self, block: str) -> Iterator[str]:
        """Commands that run on are started where they stand, each as in a terminal of its own."""
        waiting: list[str] = []
        for line in block.splitlines():
            if SERVICE.match(line):
                yield self.run("\n".join(waiting))
                waiting = []
                self._start(line)
            else:
                waiting.append(line)
        yield self.run("\n".join(waiting))

    def run(self, commands: str) -> str:
        if not commands.strip():
            return ""
        ran = subprocess.run(
            ["bash", "-c", _SHELL.format(commands=commands)],
            env=self._variables(),
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        if ran.returncode != 0:
            raise Refused(f"{commands}\n{ran.stdout}{ran.stderr}")
        return ran.stdout

    def _start(self, command: str) -> None:
        log = self.directory / f".log-{len(self.services)}"
        with log.open("wb") as file:
            line = _SHELL.partition("{commands}")[0] + f"exec {command}"
            self.services.append(
                subprocess.Popen(["bash", "-c", line], env=self._variables(), stdout=file, stderr=file)
            )

    def _logs(self) -> str:
        return "".join(f"\n{log.name}:\n{log.read_text()}" for log in sorted(self.directory.glob(".log-*")))

    def _variables(self) -> dict[str, str]:
        state = self.directory / ".state"
        if not state.exists():
            state.touch()
            Path(f"{state}.directory").write_text(str(self.directory))
        return self.environment | {"WALK_STATE": str(state)}

    def _write(self, name: str, block: str) -> None:
        """A new file, or more of one: below what is there, or in place of a function defined again."""
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(put_into(path.read_text(), block) if path.exists() else block)


def put_into(file: str, block: str) -> str:
    addition = _NAME.sub("", block).strip("\n")
    if defined := _functions(addition) & _functions(file):
        [name] = defined
        node = next(node for node in ast.parse(file).body if getattr(node, "name", None) == name)
        assert not getattr(node, "decorator_list", None), f"{name} is decorated"
        lines = file.splitlines()
        return "\n".join([*lines[: node.lineno - 1], addition, *lines[node.end_lineno :], ""])
    return f"{file.rstrip()}\n\n\n{addition}\n"


def _functions(code: str) -> set[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.parse(code).body if isinstance(node, kinds)}


@contextmanager
def walking(directory: Path, environment: dict[str, str], *, installing: bool = False) -> Iterator[Walk]:
    walk = Walk(directory, environment, installing)
    try:
        yield walk
        walk.stop()
    finally:
        walk.abandon()


def empty_machine(**variables: str) -> dict[str, str]:
    """Nothing that this process was told about databases, tests and Holdfast."""
    foreign = ("PG", "HOLDFAST_", "PYTEST", "WORKER_", "DATABASE_URL", "VIRTUAL_ENV", "PYTHON", "COLUMNS")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return kept | {"TERM": "dumb"} | variables
