"""The rules for work of every kind, checked with the lines of the witness and the outcomes of the tasks."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from acceptance.mixed import (
    ADDED,
    DEBOUNCED,
    GENERATIONS,
    KEYS,
    MAX_RUNNING,
    MEMBERS,
    PARTS,
    PER_KEY,
    SIGNALS,
    Case,
)
from acceptance.witness import Line, most_at_once
from support import engine
from support.engine import Connection

_OUTCOMES = """
    select t.task_id, coalesce(t.payload ->> 'label', t.payload ->> 'labels') as label,
      o.status, o.token, o.result
    from queues.task t left join queues.outcome o on o.task_id = t.task_id where t.task_id = any(%s)"""
_LEDGER = """
    select case name when 'book' then task_id::text else name end as name, count(*) as n
    from ledger group by 1"""
_SHARED = UUID(int=0)
"""The task of lines that a handler of many tasks wrote."""

TASKS = {
    "plain": 5,
    "flow": 1 + SIGNALS * PARTS,
    "chain": 1,
    "batch": 1 + MEMBERS + ADDED,
    "bulk": 10,
    "keyed": KEYS,
}
"""How many tasks a case has; how many a debounced one has depends on time."""


def root(label: str) -> str:
    """The label of the case that a line belongs to."""
    return label.partition(" ")[0].partition(".")[0]


@dataclass
class Facts:
    """About one case."""

    case: Case
    lines: list[Line]
    tasks: dict[UUID, dict[str, Any]]
    booked: dict[str, int]
    """Rows of the ledger, by the id of a flow, or by the label of a chain and how often it goes on."""

    def of(self, phase: str) -> list[Line]:
        return [line for line in self.lines if line.phase == phase]

    def tokens_below(self, prefix: str) -> dict[str, int]:
        """The token of the outcome of each task whose label begins so, by label."""
        return {
            task["label"]: task["token"] for task in self.tasks.values() if task["label"].startswith(prefix)
        }

    def ended_at(self, label: str, token: int) -> float:
        found = [line.at for line in self.of("ended") if (line.label, line.token) == (label, token)]
        return max(found, default=math.inf)


def check(conn: Connection, cases: Sequence[Case], lines: Iterable[Line]) -> list[str]:
    """What is broken. All cases have to be over."""
    by_root: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        by_root[root(line.label)].append(line)
    ids = {case.label: _ids(case, by_root[case.label]) for case in cases}
    every = [task_id for found in ids.values() for task_id in found]
    known = {row["task_id"]: row for row in engine.rows(conn, _OUTCOMES, [every])}
    booked = {row["name"]: row["n"] for row in engine.rows(conn, _LEDGER)}
    broken = []
    for case in cases:
        tasks = {task_id: known[task_id] for task_id in ids[case.label] if task_id in known}
        facts = Facts(case, by_root[case.label], tasks, booked)
        missing = [f"{task_id} does not exist" for task_id in ids[case.label] - tasks.keys()]
        found = missing or [*_ended_once(facts), *RULES[case.kind](facts)]
        broken += [f"{case.label}: {one}" for one in found]
    return broken


def _ids(case: Case, lines: list[Line]) -> set[UUID]:
    if case.kind == "chain":  # the lines of a release that made a task of each generation have other ids
        return {*case.tasks}
    return {*case.tasks, *(line.task_id for line in lines if line.task_id != _SHARED)}


def _ended_once(facts: Facts) -> list[str]:
    broken = []
    labels = Counter(task["label"] for task in facts.tasks.values())
    wanted = TASKS.get(facts.case.kind)
    if wanted is not None and (len(labels) != wanted or max(labels.values()) > 1):
        broken.append(f"it has the tasks {dict(labels)} instead of {wanted} different ones")
    finished = Counter((line.label, line.token, line.pid) for line in facts.of("ended"))
    for task in facts.tasks.values():
        allowed = ("succeeded", "cancelled") if facts.case.kind == "debounced" else ("succeeded",)
        if task["status"] not in allowed:
            broken.append(f"{task['label']} is {task['status']}")
        elif task["status"] == "succeeded":
            result = task["result"]
            if finished[task["label"], result["token"], result["pid"]] != 1:
                broken.append(f"{task['label']} has a result that no handler, or more than one, returned")
            if facts.case.kind != "bulk" and result["token"] != task["token"]:
                broken.append(f"{task['label']} has the result of another attempt")
    return broken


def _flow(facts: Facts) -> list[str]:
    """Each signal was taken once and in order. Each join waited for its children, and has their results."""
    label, broken = facts.case.label, []
    heard, joined = _said(facts.of("heard")), _said(facts.of("joined"))
    if heard != {str(n): {str(n)} for n in range(SIGNALS)}:
        broken.append(f"signals were taken as {heard}")
    for number in range(SIGNALS):
        tokens = facts.tokens_below(f"{label}.{number}.")
        wanted = " ".join(str(tokens.get(f"{label}.{number}.{n}")) for n in range(PARTS))
        if joined.get(str(number)) != {wanted}:
            broken.append(f"join {number} returned {joined.get(str(number))} instead of {wanted}")
        at = min((x.at for x in facts.of("joined") if x.label.split()[1] == str(number)), default=0.0)
        if any(facts.ended_at(child, token) > at for child, token in tokens.items()):
            broken.append(f"join {number} did not wait for all its children")
    booked = facts.booked.get(str(facts.case.tasks[0]))
    return broken if booked == 1 else [*broken, f"its transaction left {booked} rows instead of 1"]


def _chain(facts: Facts) -> list[str]:
    """It went on as often as it had to, under one id, and booked once each time."""
    booked = [facts.booked.get(f"{facts.case.label} {left}") for left in range(GENERATIONS)]
    return [] if booked == [1] * GENERATIONS else [f"its generations left {booked} rows instead of 1 each"]


def _batch(facts: Facts) -> list[str]:
    """The last task ran after all others, also those that were added, and read what they returned."""
    tokens = facts.tokens_below(f"{facts.case.label}.")
    gathered = facts.of("gathered")
    read = [sorted(map(int, line.label.split()[1:])) for line in gathered]
    broken = []
    if not read or any(one != sorted(tokens.values()) for one in read):
        broken.append(f"the last task read {read} instead of {sorted(tokens.values())}")
    elif any(facts.ended_at(member, token) > gathered[0].at for member, token in tokens.items()):
        broken.append("the last task did not wait for all others")
    return broken


def _debounced(facts: Facts) -> list[str]:
    """The latest arguments ran, and no earlier ones began after later ones, except for another attempt."""
    latest = facts.tasks[facts.case.tasks[-1]]
    ran = latest["status"] == "succeeded" and len(facts.case.tasks) == DEBOUNCED
    first = [int(x.label.rpartition(".")[2]) for x in facts.of("started") if x.attempt == 1]
    broken = [] if ran else ["the latest call did not run"]
    return broken + ([] if first == sorted(first) else [f"calls ran in the order {first}"])


def _nothing_else(facts: Facts) -> list[str]:
    del facts
    return []


RULES = {
    "plain": _nothing_else,
    "flow": _flow,
    "chain": _chain,
    "batch": _batch,
    "bulk": _nothing_else,
    "debounced": _debounced,
    "keyed": _nothing_else,
}


def check_limits(
    lines: Sequence[Line], killed: dict[int, float], crashes: Sequence[tuple[float, float]] = ()
) -> tuple[list[str], int]:
    """What is broken, and how many ran at once."""
    limited = [line for line in lines if line.label.startswith("keyed-")]
    most = most_at_once(limited, lambda line: ("all", line.label.rpartition(".")[2]), killed, crashes)
    if not most:
        return [], 0
    in_all = most.pop("all")
    per_key = max(most.values())
    within = in_all <= MAX_RUNNING and per_key <= PER_KEY
    found = f"{in_all} ran at once and {per_key} of one key: the limits are {MAX_RUNNING} and {PER_KEY}"
    return [] if within else [found], in_all


def _said(lines: list[Line]) -> dict[str, set[str]]:
    """By the second word, what followed it; each attempt says it again."""
    found: dict[str, set[str]] = defaultdict(set)
    for line in lines:
        _, number, *rest = line.label.split()
        found[number].add(" ".join(rest))
    return dict(found)
