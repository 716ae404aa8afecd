"""What a worker counts: plain numbers, so that it costs next to nothing; for Prometheus only when asked."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

SECONDS = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0)


class Histogram:
    """Counts per bucket, and the sum."""

    __slots__ = ("buckets", "total")

    def __init__(self) -> None:
        self.buckets = [0] * (len(SECONDS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        for n, limit in enumerate(SECONDS):
            if seconds <= limit:
                self.buckets[n] += 1
                break
        else:
            self.buckets[-1] += 1
        self.total += seconds

    def cumulative(self) -> list[tuple[str, float]]:
        counted, pairs = 0, []
        for limit, count in zip((*map(str, SECONDS), "+Inf"), self.buckets, strict=True):
            counted += count
            pairs.append((limit, float(counted)))
        return pairs


@dataclass
class Metrics:
    claimed: int = 0
    claims: int = 0
    finishes: int = 0
    lost_leases: int = 0
    reconnects: int = 0
    in_flight: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    handler_seconds: dict[str, Histogram] = field(default_factory=dict)
    queue_delay: Histogram = field(default_factory=Histogram)

    def settled(self, verdict: str) -> None:
        self.verdicts[verdict] += 1

    def handled(self, task_type: str, seconds: float) -> None:
        histogram = self.handler_seconds.get(task_type)
        if histogram is None:
            histogram = self.handler_seconds[task_type] = Histogram()
        histogram.add(seconds)


class Collector:
    """Reads the counts when Prometheus asks for them."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily  # noqa: PLC0415 - an extra

        m = self._metrics
        for name, text, value in (
            ("holdfast_claimed", "Tasks claimed.", m.claimed),
            ("holdfast_claims", "Round trips that claimed.", m.claims),
            ("holdfast_finishes", "Round trips that settled results.", m.finishes),
            ("holdfast_lost_leases", "Leases lost before the task ended.", m.lost_leases),
            ("holdfast_reconnects", "Connections made again.", m.reconnects),
        ):
            yield CounterMetricFamily(name, text, value=value)
        yield GaugeMetricFamily("holdfast_in_flight", "Tasks held now.", value=m.in_flight)
        verdicts = CounterMetricFamily("holdfast_settled", "Results settled, by verdict.", labels=["verdict"])
        for verdict, count in list(m.verdicts.items()):
            verdicts.add_metric([verdict], count)
        yield verdicts
        seconds = HistogramMetricFamily("holdfast_handler_seconds", "How long handlers ran.", labels=["type"])
        for task_type, histogram in list(m.handler_seconds.items()):
            seconds.add_metric([task_type], histogram.cumulative(), histogram.total)
        yield seconds
        delay = HistogramMetricFamily("holdfast_queue_delay_seconds", "From due to claimed.")
        delay.add_metric([], m.queue_delay.cumulative(), m.queue_delay.total)
        yield delay


def serve(metrics: Metrics, port: int) -> tuple[int, Any]:
    """Serve on 127.0.0.1; answers the port, and the server to shut down."""
    from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415 - an extra

    registry = CollectorRegistry()
    registry.register(Collector(metrics))
    server, _ = start_http_server(port, addr="127.0.0.1", registry=registry)
    return int(server.server_port), server
