"""What a worker counts: plain numbers, which cost almost nothing. They are formatted when Prometheus asks."""

import os
import threading
import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from holdfast._engine.leases import Vitals
from holdfast.errors import ConfigurationError

RATE_SECONDS = 300.0
SAMPLE_SECONDS = 10.0
SECONDS = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    *(1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0, 43200.0),
)
SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)

MAX_STEPS = 500
MAX_COUNTED = 1000
"""Pairs of a queue and a type that are counted apart; what comes later is counted as OTHERS."""
OTHERS = ("(others)", "(others)")

RoundTrip = Literal["claim", "finish", "heartbeat", "release", "record_steps"]


class Histogram:
    """Counts per bucket, and the sum."""

    __slots__ = ("buckets", "limits", "total")

    def __init__(self, limits: tuple[float, ...] = SECONDS) -> None:
        self.limits = limits
        self.buckets = [0] * (len(limits) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.buckets[bisect_left(self.limits, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self.buckets)

    def cumulative(self) -> list[tuple[str, float]]:
        counted, pairs = 0, []
        for limit, count in zip((*map(str, self.limits), "+Inf"), self.buckets, strict=True):
            counted += count
            pairs.append((limit, float(counted)))
        return pairs


class AttemptCounts:
    """What is counted about the attempts of one type in one queue."""

    __slots__ = ("delay", "endings", "run")

    def __init__(self) -> None:
        self.run = Histogram()
        self.delay = Histogram()
        self.endings: Counter[str] = Counter()


@dataclass
class Metrics:
    claimed: int = 0
    lost_leases: int = 0
    reconnects: int = 0
    in_flight: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    failed_steps: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By type and step, at most MAX_STEPS of them."""
    batches: dict[RoundTrip, Histogram] = field(default_factory=dict)
    attempts: dict[tuple[str, str], AttemptCounts] = field(default_factory=dict)
    """By queue and type."""
    _samples: deque[tuple[float, int]] = field(default_factory=lambda: deque([(time.monotonic(), 0)]))
    _sampling: threading.Lock = field(default_factory=threading.Lock)

    def vitals(self, now: float | None = None) -> Vitals:
        """For heartbeats, in any thread. The rate is that of the last five minutes, or since the start."""
        now = time.monotonic() if now is None else now
        # Copies, because the loop counts meanwhile.
        finished = sum(sum(list(one.endings.values())) for one in list(self.attempts.values()))
        with self._sampling:
            if now - self._samples[-1][0] >= SAMPLE_SECONDS:
                self._samples.append((now, finished))
            while len(self._samples) > 1 and now - self._samples[1][0] >= RATE_SECONDS:
                self._samples.popleft()
            since, before = self._samples[0]
        return Vitals(_resident_bytes(), finished, max(0, finished - before) / max(1.0, now - since))

    @property
    def finished(self) -> Counter[str]:
        """Attempts that ended, by what they led to."""
        return sum((one.endings for one in list(self.attempts.values())), Counter())

    @property
    def queue_delay(self) -> Histogram:
        return _merged(one.delay for one in list(self.attempts.values()))

    @property
    def handler_seconds(self) -> dict[str, Histogram]:
        """By type."""
        by_type: dict[str, list[Histogram]] = {}
        for (_, type_), one in list(self.attempts.items()):
            by_type.setdefault(type_, []).append(one.run)
        return {type_: _merged(histograms) for type_, histograms in by_type.items()}

    def reconnected(self) -> None:
        """Count a connection that was opened again."""
        self.reconnects += 1

    def sent(self, kind: RoundTrip, tasks: int) -> None:
        """Count a round trip about this many tasks."""
        histogram = self.batches.get(kind)
        if histogram is None:
            histogram = self.batches[kind] = Histogram(SIZES)
        histogram.add(tasks)

    def step_failed(self, task_type: str, step: str) -> None:
        """Count a failed try. What is beyond the limit is counted under one name, to bound what is kept."""
        key = (task_type, step)
        if key not in self.failed_steps and len(self.failed_steps) >= MAX_STEPS:
            key = ("other", "other")
        self.failed_steps[key] += 1

    def attempts_of(self, queue: str, task_type: str) -> AttemptCounts:
        key = (queue, task_type)
        attempts = self.attempts.get(key)
        if attempts is None:
            # A client can enqueue any number of types; a worker must not grow with them.
            key = key if len(self.attempts) < MAX_COUNTED else OTHERS
            attempts = self.attempts.setdefault(key, AttemptCounts())
        return attempts


def _resident_bytes() -> int | None:
    """The resident memory of this process; None where the system does not tell it in /proc."""
    try:
        with open("/proc/self/statm", "rb") as statm:  # noqa: PTH123 - called with every heartbeat
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _merged(histograms: Iterable[Histogram]) -> Histogram:
    merged = Histogram()
    for one in histograms:
        merged.buckets = [a + b for a, b in zip(merged.buckets, one.buckets, strict=True)]
        merged.total += one.total
    return merged


class Collector:
    """Reads the counts when Prometheus asks for them, in the thread of its server."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415 - an extra

        m = self._metrics
        yield CounterMetricFamily("holdfast_claimed", "Tasks claimed.", value=m.claimed)
        yield CounterMetricFamily("holdfast_lost_leases", "Leases lost before the end.", value=m.lost_leases)
        yield CounterMetricFamily("holdfast_reconnects", "Connections made again.", value=m.reconnects)
        yield GaugeMetricFamily("holdfast_in_flight", "Tasks held now.", value=m.in_flight)
        yield _counts(
            "holdfast_finished",
            "Attempts that ended, by what they led to.",
            ("status",),
            _named(m.finished),
        )
        yield _counts(
            "holdfast_refused", "Results that were not stored, by verdict.", ("verdict",), _named(m.refused)
        )
        yield _counts(
            "holdfast_failed_step_tries", "Tries of steps that failed.", ("type", "step"), m.failed_steps
        )
        yield _histograms("holdfast_handler_seconds", "How long handlers ran.", "type", m.handler_seconds)
        yield _histograms("holdfast_batch_size", "Tasks per round trip.", "kind", m.batches)
        yield _histograms("holdfast_queue_delay_seconds", "From due to started.", "", {"": m.queue_delay})


def _named(counts: Counter[str]) -> dict[tuple[str, ...], int]:
    return {(value,): count for value, count in list(counts.items())}


def _counts(
    name: str,
    text: str,
    labels: tuple[str, ...],
    counts: Mapping[tuple[str, ...], int] | Counter[tuple[str, str]],
) -> Any:
    from prometheus_client.core import CounterMetricFamily  # noqa: PLC0415 - an extra

    family = CounterMetricFamily(name, text, labels=labels)
    for values, count in list(counts.items()):
        family.add_metric(values, count)
    return family


def _histograms(name: str, text: str, label: str, histograms: dict[Any, Histogram]) -> Any:
    from prometheus_client.core import HistogramMetricFamily  # noqa: PLC0415 - an extra

    family = HistogramMetricFamily(name, text, labels=[label] if label else [])
    for value, histogram in list(histograms.items()):
        family.add_metric([value] if label else [], histogram.cumulative(), histogram.total)
    return family


def serve(metrics: Metrics, port: int) -> tuple[int, Callable[[], None]]:
    """Serve on 127.0.0.1; returns the port and a function that stops it."""
    try:
        from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415 - an extra
    except ImportError:
        raise ConfigurationError(
            f"HOLDFAST_METRICS_PORT={port} needs prometheus-client", hint="pip install 'holdfast-pg[metrics]'"
        ) from None
    registry = CollectorRegistry()
    registry.register(Collector(metrics))
    try:
        server, thread = start_http_server(port, addr="127.0.0.1", registry=registry)
    except OSError as error:
        raise ConfigurationError(f"HOLDFAST_METRICS_PORT={port} cannot be used: {error.strerror}") from error

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return int(server.server_port), stop
