"""A program that runs tasks: `python -m yourproject.task_executor` for the executor `command`.

The payload comes as JSON on stdin, the envelope goes to stdout, everything else to stderr.
"""

import json
import sys
from collections.abc import Callable
from typing import Any


def add(numbers: list[int]) -> int:
    return sum(numbers)


def shout(text: str) -> str:
    return text.upper()


TASKS: dict[str, Callable[..., Any]] = {"add": add, "shout": shout}


def answer(payload: Any) -> dict[str, Any]:
    if not isinstance(payload, dict) or payload.get("task") not in TASKS:
        return {"success": False, "validation_failure_message": f'"task" must be one of {", ".join(TASKS)}'}
    try:
        return {"success": True, "payload": TASKS[payload["task"]](**payload.get("arguments", {}))}
    except TypeError as error:
        return {"success": False, "validation_failure_message": str(error)}
    except Exception as error:  # noqa: BLE001 - it is tried again
        return {"success": False, "error": str(error)}


def main() -> None:
    print("reading the payload", file=sys.stderr)
    json.dump(answer(json.load(sys.stdin)), sys.stdout)


if __name__ == "__main__":
    main()
