"""Exceptions that end an attempt in the middle of its handler."""

from typing import Any


class Stopped(BaseException):
    """Raised by `Context.check` when the task was cancelled, deleted or lost. Do not catch it.

    Not an Exception, so that `except Exception` in a handler does not catch it by mistake.
    """


class Continued(BaseException):
    """Raised by `Context.continue_as`. Do not catch it."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        super().__init__("the run goes on with other arguments")
        self.arguments = arguments


class Suspended(BaseException):
    """Ends the attempt of a plain function whose run waits. Do not catch it.

    Not an Exception, so that `except Exception` in a handler does not catch it by mistake.
    """
