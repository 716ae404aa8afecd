"""How a delivery fails."""


class Undelivered(Exception):
    """The receiver did not take the event: it is tried again, after `delay` seconds if it said so."""

    def __init__(self, message: str, *, delay: float | None = None) -> None:
        super().__init__(message)
        self.delay = delay


class Rejected(Exception):
    """The event can never be delivered: it is dead at once."""
