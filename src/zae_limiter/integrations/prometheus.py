"""A tally for Prometheus, which pulls it.

::

    tally = Tally()
    limiter = SyncRateLimiter.open(url, observer=tally)
    prometheus.register(tally)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import REGISTRY, Collector, CollectorRegistry

from zae_limiter.integrations.tally import Histogram, Tally

__all__ = ["TallyCollector", "dashboard", "register"]

Key = TypeVar("Key", bound=Sequence[str])


def register(tally: Tally, registry: CollectorRegistry = REGISTRY) -> TallyCollector:
    """Let a registry collect a tally. Returns the collector, for ``registry.unregister``."""
    collector = TallyCollector(tally)
    registry.register(collector)
    return collector


def dashboard() -> str:
    """A dashboard for Grafana, as JSON: import it, and choose the data source."""
    return resources.files("zae_limiter.integrations").joinpath("grafana.json").read_text(encoding="utf-8")


class TallyCollector(Collector):
    """The numbers of a tally, as they are when Prometheus asks."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def collect(self) -> Iterator[Metric]:
        """Every number."""
        numbers = self._tally.numbers()
        decided = "How acquires were decided, and which limit lacked."
        yield _counter("decisions", decided, ("resource", "outcome", "limit", "level"), numbers.decisions)
        moved = "Tokens that were taken and given back."
        yield _counter("tokens", moved, ("resource", "limit", "direction"), numbers.tokens)
        warned = "How often a limit began to be used to the point of warning."
        yield _counter("warnings", warned, ("resource", "limit"), numbers.warnings)
        failed = "Tries to write a settlement that failed."
        unsettled = {(resource,): count for resource, count in numbers.unsettled.items()}
        yield _counter("unsettled", failed, ("resource",), unsettled)
        used = "The part of its burst to which a limit was used when it was met."
        yield _histogram("utilization_ratio", used, ("resource", "limit"), numbers.utilization)
        waited = "Time that acquires spent in the wait queue."
        waits = {(resource,): histogram for resource, histogram in numbers.waits.items()}
        yield _histogram("wait_seconds", waited, ("resource",), waits)
        asked = "Time that the store took, by what it was asked and how it failed."
        yield _histogram("store_call_seconds", asked, ("verb", "error"), numbers.store_calls)


def _counter(name: str, text: str, labels: Sequence[str], counts: Mapping[Key, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(f"zae_limiter_{name}", text, labels=labels)
    for key, count in counts.items():
        family.add_metric(list(key), count)
    return family


def _histogram(
    name: str, text: str, labels: Sequence[str], histograms: Mapping[Key, Histogram]
) -> HistogramMetricFamily:
    """Thousandths become ones: milliseconds seconds, and permille a ratio."""
    family = HistogramMetricFamily(f"zae_limiter_{name}", text, labels=labels)
    for key, histogram in histograms.items():
        buckets: list[tuple[str, float]] = []
        below = 0
        for bound, count in zip((*histogram.bounds, None), histogram.counts, strict=True):
            below += count
            buckets.append(("+Inf" if bound is None else str(bound / 1000), below))
        family.add_metric(list(key), buckets, sum_value=histogram.total / 1000)
    return family
