"""The options of `@app.task`, declared once.

The decorator, its type, the checks and the reference are built from this declaration. To add an option, add a
field here, and one to `Handler` for what reads it.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Annotated, Any, NamedTuple, Required, TypedDict, get_type_hints

from holdfast._engine.enqueue import REUSES, Reuse
from holdfast._install import entry_points
from holdfast.errors import InvalidHandler, did_you_mean
from holdfast.options import EXECUTORS, IN_DATABASE
from holdfast.resources import Resources
from holdfast.retry import DEFAULT_RETRY, RetryPolicy

RAY_OPTIONS = (
    *("num_cpus", "num_gpus", "memory", "resources", "accelerator_type", "label_selector", "runtime_env"),
    "scheduling_strategy",
)
"""Options of `ray.remote` that say what a run needs. The others belong to Holdfast."""
MAX_NAME_BYTES = 200
MAX_BATCH = 10_000
MAX_BATCH_WAIT_SECONDS = 60.0
DEFAULT_BATCH_WAIT_SECONDS = 0.1
# As queues.check_name decides: white space and control characters are listed by number.
_NO_SPACE = r"[^.:\x00-\x20\x7f-\xa0\u1680\u2000-\u200b\u2028\u2029\u202f\u205f\u3000\ufeff]+"
_NAME = re.compile(rf"{_NO_SPACE}(?:[.:]{_NO_SPACE})*")


class Place(NamedTuple):
    """Where an option is given: the function, and what runs it."""

    function: str
    executor: str

    def refuse(self, problem: str, hint: str | None = None) -> InvalidHandler:
        return InvalidHandler(f"{self.function}: {problem}", hint=hint)


Check = Callable[[Place, str, Any], Any]
"""Returns the value as handlers have it, or raises InvalidHandler. None is not checked."""


def check_name(place: Place, option: str, given: object) -> str:
    """Refuse what `enqueue` would refuse."""
    if not isinstance(given, str) or not _NAME.fullmatch(given):
        raise place.refuse(
            f"{option} {given!r} is malformed",
            'Segments are separated by "." or ":", are not empty and have no white space:'
            " billing.invoice_charge.v1",
        )
    size = len(given.encode("utf-8", "replace"))
    if size > MAX_NAME_BYTES:
        raise place.refuse(f"{option} is {size} bytes long, and at most {MAX_NAME_BYTES} are allowed")
    return given


def _whole(least: int, most: int) -> Check:
    def check(place: Place, option: str, given: object) -> int:
        if isinstance(given, bool) or not isinstance(given, int) or not least <= given <= most:
            raise place.refuse(f"{option} takes a whole number from {least} to {most}, not {given!r}")
        return given

    return check


def _seconds(place: Place, option: str, given: object) -> float:
    seconds = given.total_seconds() if isinstance(given, timedelta) else given
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < float("inf"):
        raise place.refuse(f"{option} takes seconds or a timedelta above 0, not {given!r}")
    return float(seconds)


def _deadline(place: Place, option: str, given: object) -> float:
    if place.executor in IN_DATABASE:
        raise place.refuse(f"a task of the executor {place.executor} has no deadline")
    return _seconds(place, option, given)


def _retry(place: Place, option: str, given: object) -> RetryPolicy:
    if not isinstance(given, RetryPolicy):
        raise place.refuse(f"{option} takes a policy such as Exponential() or NoRetry(), not {given!r}")
    return given


def _executor(place: Place, option: str, given: object) -> str:
    if given not in EXECUTORS and given not in entry_points.installed(entry_points.EXECUTORS):
        raise place.refuse(
            f"{option} {given!r} is not one of {', '.join(EXECUTORS)}, and no installed package adds it"
        )
    return str(given)


def _child_process(place: Place) -> None:
    if place.executor not in ("process", "command"):
        raise place.refuse(
            f"memory and resources need a child process, and the executor {place.executor} has none",
            'Add executor="process".',
        )


def _memory(place: Place, option: str, given: int | str) -> int | None:
    del option
    _child_process(place)
    return Resources(memory=given).memory


def _resources(place: Place, option: str, given: object) -> Resources:
    _child_process(place)
    if not isinstance(given, Resources):
        raise place.refuse(f"{option} takes Resources(…), not {given!r}")
    return given


def _fresh(place: Place, option: str, given: object) -> bool:
    if given and place.executor != "process":
        raise place.refuse(
            f"{option} asks for a new child process for each task, not for the executor {place.executor}",
            'Add executor="process"; a command has a new process anyway.',
        )
    return bool(given)


def _ray(place: Place, option: str, given: object) -> Mapping[str, Any]:
    if place.executor != "ray":
        raise place.refuse(
            f'the option {option} requires executor="ray", not {place.executor}', 'Add executor="ray".'
        )
    if not isinstance(given, Mapping):
        raise place.refuse(f'{option} takes options such as {{"num_gpus": 1}}, not {given!r}')
    for name in given:
        if name not in RAY_OPTIONS:
            raise place.refuse(f"{option} has no option {name!r}{did_you_mean(str(name), RAY_OPTIONS)}")
    return dict(given)


def _flag(place: Place, option: str, given: object) -> bool:
    del place, option
    return bool(given)


def _reuse(place: Place, option: str, given: object) -> Reuse:
    if given not in REUSES:
        raise place.refuse(f"{option} {given!r} is not one of {', '.join(REUSES)}")
    return given


def _batch(place: Place, option: str, given: object) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= MAX_BATCH:
        raise place.refuse(f"{option} takes a number of tasks from 1 to {MAX_BATCH}, not {given!r}")
    if place.executor != "python":
        raise place.refuse(f"{option} needs the executor python, not {place.executor}")
    return given


def _batch_wait(place: Place, option: str, given: object) -> float:
    seconds = given.total_seconds() if isinstance(given, timedelta) else given
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise place.refuse(f"{option} takes seconds, not {given!r}")
    if not 0 <= seconds <= MAX_BATCH_WAIT_SECONDS:
        raise place.refuse(f"{option} takes 0 to {MAX_BATCH_WAIT_SECONDS:g} seconds, not {given!r}")
    return float(seconds)


@dataclass(frozen=True, slots=True)
class HandlerOption:
    """What an option means, and how it is checked."""

    help: str
    check: Check
    default: Any = None


class HandlerOptions(TypedDict, total=False):
    """The options of `@app.task`."""

    queue: Annotated[
        str | None, HandlerOption("The queue. By default, the first segment of the type.", check_name)
    ]
    priority: Annotated[
        int, HandlerOption("From -100 to 100; higher comes first.", _whole(-100, 100), default=0)
    ]
    max_attempts: Annotated[
        int, HandlerOption("The maximum number of attempts, up to 1,000.", _whole(1, 1000), default=3)
    ]
    timeout: Annotated[
        float | timedelta | None,
        HandlerOption("Seconds, or a timedelta, that an attempt may take. By default, any.", _seconds),
    ]
    deadline: Annotated[
        float | timedelta | None,
        HandlerOption(
            "Seconds, or a timedelta, from the enqueue to the end, with everything in between: waiting, "
            "attempts, sleeps. After that, the task fails with deadline_passed.",
            _deadline,
        ),
    ]
    lease: Annotated[
        float | timedelta | None,
        HandlerOption(
            "Seconds, or a timedelta, for which a worker holds the task without a heartbeat.", _seconds
        ),
    ]
    retry: Annotated[
        RetryPolicy,
        HandlerOption(
            "The retry policy: when to retry after an exception. By default, Exponential().",
            _retry,
            default=DEFAULT_RETRY,
        ),
    ]
    executor: Annotated[
        str,
        HandlerOption(
            'What runs it: "python" in the worker, "process" in a child process, "ray" on a Ray cluster. '
            "Takes precedence over the executor that a task requests.",
            _executor,
            default="python",
        ),
    ]
    memory: Annotated[
        int | str | None,
        HandlerOption(
            'Maximum memory of a run and its child processes: bytes, or "512M". For executor="process".',
            _memory,
        ),
    ]
    resources: Annotated[
        Resources | None,
        HandlerOption(
            'Further limits of such a run: Resources(cpu=30, memory="512M", files=256, processes=10, '
            'file_size="1G").',
            _resources,
        ),
    ]
    fresh: Annotated[
        bool,
        HandlerOption(
            "Use a new child process for each task, so that tasks cannot affect each other. "
            'For executor="process".',
            _fresh,
            default=False,
        ),
    ]
    ray: Annotated[
        Mapping[str, Any] | None,
        HandlerOption(
            'What a run needs of the Ray cluster, such as {"num_gpus": 1}. For executor="ray".', _ray
        ),
    ]
    deterministic: Annotated[
        bool,
        HandlerOption(
            "The result depends only on the arguments, so that runs can be reused.", _flag, default=False
        ),
    ]
    reuse: Annotated[
        Reuse | None,
        HandlerOption(
            'For a deterministic task: with "succeeded", the default, enqueue returns an existing run of '
            'the same spec that has succeeded; with "active", also one that is not finished. Then created '
            "of the handle is False. A key takes precedence, and batches always create new tasks.",
            _reuse,
        ),
    ]


class BatchHandlerOptions(HandlerOptions, total=False):
    """The options of a handler that takes many tasks at once."""

    batch: Annotated[
        Required[int],
        HandlerOption(
            "How many tasks the handler takes at once, up to 10,000: it gets a list of their items and "
            "returns a list of results.",
            _batch,
        ),
    ]
    batch_wait: Annotated[
        float | timedelta,
        HandlerOption(
            "With batch: how many seconds, up to 60, the first task waits for others. By default, 0.1.",
            _batch_wait,
        ),
    ]


@cache
def handler_options() -> dict[str, HandlerOption]:
    """Every option by its name."""
    hints = get_type_hints(BatchHandlerOptions, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items()}


def check_handler_options(function: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Every option as handlers have it, with the defaults of those that are not given."""
    known = handler_options()
    if unknown := next((name for name in given if name not in known), None):
        raise InvalidHandler(f"{function}: unknown option {unknown!r}{did_you_mean(unknown, known)}")
    place = Place(function, given.get("executor", "python"))
    checked = {name: option.default for name, option in known.items()}
    for name, value in given.items():
        if value is not None:
            checked[name] = known[name].check(place, name, value)
    if checked["reuse"] is not None and not checked["deterministic"]:
        raise place.refuse("only the result of a deterministic task can be reused", "Add deterministic=True.")
    if checked["batch_wait"] is not None and checked["batch"] is None:
        raise place.refuse("batch_wait needs batch")
    return checked
