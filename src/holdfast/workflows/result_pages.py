"""Results of joins that are too large for one answer: read in pages, up to the limit of a run."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from holdfast.serialization.text import load_json
from holdfast.workflows.memory import FactRow


class NextPage(NamedTuple):
    """The step whose results are read next, and the place after which."""

    step: str
    after: int


class ResultPages:
    """The rows of one run, and the results that are read for them, page by page.

    Results past `max_memo_bytes` are not read. The step then has none, and raises RunTooLong when it is asked
    for them: a run that does not use them goes on.
    """

    def __init__(self, rows: Sequence[Sequence[Any]]) -> None:
        self._rows = [FactRow(*row) for row in rows]
        self._open = [
            n for n, row in enumerate(self._rows) if row.fact == "children" and _is_paged(row.error or "")
        ]
        self._read: list[str] = []
        self._after = 0
        self._bytes = 0
        self._most = 0
        if self._open:
            self._most = next(load_json(r.result)["max_memo_bytes"] for r in self._rows if r.fact == "run")
            self._bytes = sum(len(row.result or "") for row in self._rows if row.fact == "children")

    @property
    def next(self) -> NextPage | None:
        """What to read, or None if nothing is missing."""
        return NextPage(self._rows[self._open[0]].name or "", self._after) if self._open else None

    @property
    def rows(self) -> Sequence[Sequence[Any]]:
        return self._rows

    def add(self, page: Sequence[tuple[int, str]]) -> bool:
        """Add what was read. False if there was nothing: a child has changed, or the lease is lost."""
        if not page:
            return False
        self._after = page[-1][0]
        self._read += [result for _, result in page]
        self._bytes += sum(len(result) for _, result in page)
        row = self._rows[self._open[0]]
        about = load_json(row.error)
        expected = (row.number or 0) - len(about.get("others") or ())
        if self._bytes > self._most:
            # What one step leaves of the limit is too little for the next ones, too.
            for n in self._open:
                about = load_json(self._rows[n].error) | {"too_large": self._most}
                self._rows[n] = self._rows[n]._replace(error=json.dumps(about))
            self._open, self._read = [], []
        elif len(self._read) >= expected:
            self._rows[self._open[0]] = row._replace(result=f"[{','.join(self._read)}]")
            del self._open[0]
            self._read, self._after = [], 0
        return True


def _is_paged(about: str) -> bool:
    return '"paged"' in about and bool(load_json(about).get("paged"))
