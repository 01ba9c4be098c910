"""What load balancers and monitoring ask."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from zae_limiter.integrations.prometheus import TallyCollector
from zae_limiter.service.backend import Backend
from zae_limiter.service.operations import Call, json_reply
from zae_limiter.service.problems import Reply, problem


async def live(call: Call) -> Reply:
    """The process runs."""
    return json_reply({"ok": True})


async def ready(call: Call) -> Reply:
    """Whether requests can be answered."""
    if await call.backend.is_ready():
        return json_reply({"ok": True})
    why = "the process is about to end" if call.backend.is_ending else "the store does not answer"
    return problem(503, why, ok=False)


async def metrics(call: Call) -> Reply:
    """The numbers of this process, for Prometheus."""
    call.caller.check_everything()
    registry = CollectorRegistry()
    registry.register(TallyCollector(call.backend.tally))
    registry.register(AnswerCollector(call.backend))
    return Reply(200, generate_latest(registry), [(b"content-type", CONTENT_TYPE_LATEST.encode())])


class AnswerCollector(Collector):
    """How many requests were answered, by operation and status; and what companions count."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def collect(self) -> Iterator[Metric]:
        """Every number."""
        words = "Requests that the service answered."
        family = CounterMetricFamily("zae_limiter_service_answers", words, labels=["operation", "status"])
        for (operation, status), count in sorted(self._backend.answers.items()):
            family.add_metric([operation, str(status)], count)
        yield family
        words = "What servers for other protocols did."
        family = CounterMetricFamily("zae_limiter_service_events", words, labels=["protocol", "event"])
        for protocol, counts in self._backend.companion_counts.items():
            for event, count in sorted(counts().items()):
                family.add_metric([protocol, event], count)
        yield family
