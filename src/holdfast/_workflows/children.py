"""The tasks that a run has started, or that came before it: which have ended, and their results."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.errors import RunTooLong


class ChildFact(NamedTuple):
    """A task that a step waits for, and that has not succeeded: open, or how it has ended."""

    number: int
    task_id: str
    status: str
    reason: str | None = None

    @property
    def is_open(self) -> bool:
        return self.status == "open"


class Children:
    """The tasks that a step has started and waits for. Their results are one array, for there may be many."""

    def __init__(self, count: int, results: str | None, about: Mapping[str, Any]) -> None:
        self.count = count
        self._results = results
        self._too_large: int | None = about.get("too_large")
        self.is_partial = results is None and bool(about.get("paged"))
        """Whether there are results that were not read."""
        self.open: int = about["open"]
        self.keys: Sequence[str] | None = about.get("keys")
        self.others = {number: ChildFact(number, *rest) for number, *rest in about.get("others") or ()}

    @property
    def bytes(self) -> int:
        return len(self._results or "")

    def results(self, name: str) -> str:
        """Those of the tasks that succeeded, as a JSON array. `name` is that of the step."""
        if self._too_large is not None:
            whose = f"the tasks of {name}" if name else "the tasks before this one"
            raise RunTooLong(
                f"the results of {whose} are too large: a run reads {self._too_large} bytes of them",
                hint="Let the tasks return references, join fewer, or raise the setting max_memo_bytes.",
            )
        return self._results or "[]"

    @classmethod
    def started(cls, task_ids: Sequence[str], keys: Sequence[str] | None) -> "Children":
        others = [[number, task_id, "open", None] for number, task_id in enumerate(task_ids, 1)]
        return cls(len(task_ids), None, {"open": len(others), "keys": keys, "others": others})


NO_CHILDREN = Children.started((), None)
