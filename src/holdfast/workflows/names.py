"""Names of steps: the identity by which a resumed run finds what it did."""

from collections.abc import Callable
from typing import Any

from holdfast.errors import InvalidStep
from holdfast.serialization.text import require_storable

MAX_NAME_BYTES = 300


class StepNames:
    """Gives each step its name when it is called, not when it is awaited.

    The name is that of the function, then `[key]`, then `#2` for the second call of the same name. Two
    asyncio tasks must not use one name at the same time: their order could differ in the next attempt.
    """

    def __init__(self) -> None:
        self._count: dict[str, int] = {}
        self._user: dict[str, Any] = {}

    def give(self, base: str, key: object = None, user: Any = None, root: Any = None) -> str:
        """`user` is the asyncio task that calls, `root` the one of the handler."""
        name = base if key is None else f"{base}[{key}]"
        if 4 * len(name) > MAX_NAME_BYTES and len(name.encode("utf-8", "replace")) > MAX_NAME_BYTES:
            raise InvalidStep(
                f"the name of a step is longer than {MAX_NAME_BYTES} bytes: {name[:60]}…",
                hint="Choose a shorter key, such as an id.",
            )
        require_storable("the name of a step", name)
        before = self._user.get(name)
        if before is not None and before is not user and user is not root and not _is_done(before):
            raise InvalidStep(
                f"two asyncio tasks call the step {name!r} at the same time, and their order may change",
                hint="Give each call its own key: ctx.step(function, …, key=item.id).",
            )
        self._user[name] = user
        number = self._count[name] = self._count.get(name, 0) + 1
        return name if number == 1 else self._numbered(name, number)

    def _numbered(self, name: str, number: int) -> str:
        """The application may use a name such as `sleep#2` itself: skip it, and let it count as used."""
        while (numbered := f"{name}#{number}") in self._count:
            number += 1
        self._count[name] = number
        self._count[numbered] = 1
        return numbered


def _is_done(task: Any) -> bool:
    done: Callable[[], bool] | None = getattr(task, "done", None)
    return done is None or done()
