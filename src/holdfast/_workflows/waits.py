"""The waits of a run: `ctx.sleep`, `ctx.sleep_until` and `ctx.wait`."""

from datetime import datetime, timedelta
from typing import Any

from holdfast._workflows.facts import StepFact
from holdfast._workflows.memory import Wait, to_datetime
from holdfast._workflows.operations import Pause, Plain, Work
from holdfast._workflows.step import LONGEST_WAIT, RunLog, codec_of, seconds_of, timeout_of
from holdfast.errors import InvalidStep


class Waits:
    def __init__(self, log: RunLog) -> None:
        self._log = log

    def sleep(self, duration: float | timedelta, name: str | None) -> Any:
        seconds = seconds_of("ctx.sleep", duration)
        work = self._sleep(seconds, None, *self._log.begin(name or "sleep"))
        return self._log.driver.call("ctx.sleep", seconds, work)

    def sleep_until(self, moment: datetime, name: str | None) -> Any:
        until = moment_of("ctx.sleep_until", moment)
        work = self._sleep(0.0, until, *self._log.begin(name or "sleep"))
        return self._log.driver.call("ctx.sleep_until", moment, work)

    def wait(self, signal: str, kind: Any, timeout: float | timedelta | None) -> Any:
        seconds = timeout_of(timeout)
        return self._log.driver.call(
            "ctx.wait", signal, self._wait(signal, kind, seconds, *self._log.begin(signal))
        )

    def _sleep(self, seconds: float, moment: float | None, name: str, number: int) -> Work[None]:
        yield Plain.ONLY_WAITS
        memory = yield from self._log.load()
        fact = memory.steps.get(name)
        if fact is not None:
            until = fact.until or 0.0
        else:
            self._log.check_room(memory, name, number)
            until = self._until_of(seconds, moment)
            self._log.keep(name, number, "sleep", until=until)
        while self._log.state.now() < until:
            yield Pause(Wait(name, until))

    def _until_of(self, seconds: float, moment: float | None) -> float:
        """The end of a sleep of some seconds, or until a moment."""
        now = self._log.state.now()
        if moment is not None and moment > now + LONGEST_WAIT:
            raise InvalidStep(f"ctx.sleep_until waits at most 90 years, not until {to_datetime(moment)}")
        return now + seconds if moment is None else moment

    def _wait(self, signal: str, kind: Any, seconds: float, name: str, number: int) -> Work[Any]:
        yield Plain.ONLY_WAITS
        memory = yield from self._log.load()
        codec = codec_of(f"the signal {signal}", kind)
        fact = memory.steps.get(name)
        if fact is not None:
            return memory.value_of(fact, codec)
        self._log.check_room(memory, name, number)
        until = memory.waits.get(name, self._log.state.now() + seconds)
        self._log.state.awaited[signal] += 1
        try:
            while True:
                while memory.has_unread(signal):
                    yield Plain.FLUSH  # so that those which were taken are not read again
                    yield Plain.READ
                taken = memory.take_signal(signal)
                if taken is not None:
                    break
                if self._log.state.now() >= until:
                    raise self._log.timed_out(name, number, "signal", until - seconds)
                yield Pause(Wait(name, until, signal), looks=True)
                yield Plain.READ  # a signal may have come while other steps were at work
        finally:
            self._log.state.awaited[signal] -= 1
        took = self._log.took(until - seconds)
        self._log.keep(name, number, "signal", taken.payload, signal_id=taken.signal_id, took=took)
        self._log.driver.send_soon()
        return memory.value_of(StepFact(name, "signal", None, taken.payload, None), codec)


def moment_of(what: str, given: object) -> float:
    """A time with a time zone, as seconds since 1970."""
    if not isinstance(given, datetime) or given.tzinfo is None:
        raise InvalidStep(
            f"{what} takes a datetime with a time zone, not {given!r}",
            hint="Pass tzinfo=ZoneInfo('Europe/Berlin') or UTC to it, or add a timedelta to ctx.now().",
        )
    return given.timestamp()
