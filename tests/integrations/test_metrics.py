"""Numbers about a limiter: counted as whole numbers, pulled by exporters, shown by a dashboard."""

from __future__ import annotations

import json
import re
import threading
from typing import Any

import jsonschema
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from zae_limiter import Limit, LimitStatus, RateLimitExceeded, SyncRateLimiter, ValidationError
from zae_limiter.integrations import opentelemetry, prometheus
from zae_limiter.integrations.tally import Decision, NamedLimit, StoreVerb, Tally, TokenFlow, observers
from zae_limiter.testing import FailingStore, FakeClock, MemoryStore, sync_memory_limiter

LIMITS = [Limit.per_day("rpm", 10), Limit.per_day("tpm", 1_000)]


def played(tally: Any, **options: Any) -> SyncRateLimiter:
    """A limiter that has granted, settled, given back and refused, by its own limits and by an ancestor's."""
    limiter = sync_memory_limiter(LIMITS, clock=FakeClock(auto_advance=False), observer=tally, **options)
    limiter.create_entity("org")
    limiter.set_limits("org", [Limit.per_day("rpm", 4)])
    limiter.create_entity("key", parent_id="org", cascade=True)
    for _ in range(3):
        with limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 100}) as lease:
            lease.settle(tpm=150)
    with limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 100}) as lease:
        lease.settle(tpm=40)
    for entity, wanted in (("key", {"rpm": 1}), ("alone", {"tpm": 900}), ("alone", {"tpm": 900})):
        try:
            with limiter.acquire(entity, "gpt", wanted):
                pass
        except RateLimitExceeded:
            pass
    return limiter


def test_what_was_decided_is_counted_by_bounded_names() -> None:
    tally = Tally(look_every=1)
    played(tally)
    numbers = tally.numbers()
    assert numbers.decisions == {
        Decision("gpt", "granted"): 5,
        Decision("gpt", "refused", "rpm", "ancestor"): 1,
        Decision("gpt", "refused", "tpm", "own"): 1,
    }
    assert numbers.tokens == {
        TokenFlow("gpt", "rpm", "taken"): 4,
        TokenFlow("gpt", "tpm", "taken"): 400 + 150 + 900,
        TokenFlow("gpt", "tpm", "given_back"): 60,
    }
    assert numbers.utilization[NamedLimit("gpt", "rpm")].counts[:3] == [3, 1, 3]
    assert sum(numbers.store_calls[StoreVerb("draw", "")].counts) == 7
    assert not [key for table in (numbers.decisions, numbers.tokens) for key in table if "key" in key]


def test_a_warning_comes_once_until_the_limit_is_used_less() -> None:
    warned: list[LimitStatus] = []
    clock = FakeClock(auto_advance=False)
    limiter = sync_memory_limiter(
        [Limit.per_minute("rpm", 10)], clock=clock, observer=Tally(warn_at=0.8, on_warning=warned.append, look_every=1)
    )

    def take(times: int) -> None:
        for _ in range(times):
            with limiter.acquire("key", "gpt", {"rpm": 1}):
                pass

    take(7)
    assert warned == []
    take(3)
    assert [(status.limit_name, status.available) for status in warned] == [("rpm", 2)]
    clock.advance(60)
    take(8)
    assert len(warned) == 2
    with limiter.acquire("other", "gpt", {"rpm": 9}):
        pass
    assert warned[-1].entity_id == "other"


def test_names_beyond_the_first_are_others() -> None:
    tally = Tally()
    limiter = sync_memory_limiter(LIMITS, observer=tally)
    for number in range(250):
        with limiter.acquire("key", f"model-{number}", {"rpm": 1}):
            pass
    counted = {key.resource: count for key, count in tally.numbers().decisions.items()}
    assert len(counted) == 201
    assert counted["other"] == 50


def test_threads_lose_no_count() -> None:
    tally = Tally()
    limiter = sync_memory_limiter([Limit.per_day("rpm", 10**6)], observer=tally)

    def take() -> None:
        for _ in range(500):
            with limiter.acquire("key", "gpt", {"rpm": 1}):
                pass

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert tally.numbers().decisions == {Decision("gpt", "granted"): 4_000}


def test_outages_are_counted() -> None:
    tally = Tally()
    store = FailingStore(MemoryStore())
    limiter = sync_memory_limiter(LIMITS, store=store, observer=tally)
    with limiter.acquire("key", "gpt", {"rpm": 1}) as lease:
        lease.adjust(rpm=1)
        store.fail("settle")
    store.heal()
    store.fail("draw", times=1)
    with limiter.acquire("key", "gpt", {"rpm": 1}, on_unavailable="allow"):
        pass
    numbers = tally.numbers()
    assert numbers.unsettled == {"gpt": 3}  # every try to settle that failed
    assert numbers.decisions[Decision("gpt", "degraded")] == 1
    assert StoreVerb("draw", "RateLimiterUnavailable") in numbers.store_calls


def test_a_tally_may_look_at_some_grants_only() -> None:
    tally = Tally(look_every=4)
    limiter = sync_memory_limiter([Limit.per_day("rpm", 10)], clock=FakeClock(auto_advance=False), observer=tally)
    for _ in range(9):
        with limiter.acquire("key", "gpt", {"rpm": 1}):
            pass
    numbers = tally.numbers()
    assert numbers.decisions == {Decision("gpt", "granted"): 9}
    assert numbers.utilization[NamedLimit("gpt", "rpm")].total == 100 + 500 + 900
    assert numbers.warnings == {NamedLimit("gpt", "rpm"): 1}


def test_a_grant_some_time_after_the_last_look_is_looked_at() -> None:
    tally, clock = Tally(look_every=1_000), FakeClock(auto_advance=False)
    limiter = sync_memory_limiter([Limit.per_day("rpm", 10)], clock=clock, observer=tally)
    for seconds in (0, 0.05, 0.049, 0.002, 0.098, 0.003):
        clock.advance(seconds)
        with limiter.acquire("key", "gpt", {"rpm": 1}):
            pass
    numbers = tally.numbers()
    assert numbers.tokens == {TokenFlow("gpt", "rpm", "taken"): 6}
    assert numbers.utilization[NamedLimit("gpt", "rpm")].total == 100 + 400 + 600


def test_what_is_no_part_of_a_burst_is_refused() -> None:
    for wrong in (0, -1, 1.5, True):
        with pytest.raises(ValidationError):
            Tally(look_every=wrong)  # type: ignore[arg-type]
    for wrong in (0, -1, 1.5, "much", True):
        with pytest.raises(ValidationError):
            Tally(warn_at=wrong)  # type: ignore[arg-type]


def scraped() -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """What Prometheus reads of a tally, by its own parser."""
    tally, registry = Tally(look_every=1), CollectorRegistry()
    prometheus.register(tally, registry)
    played(tally)
    families = text_string_to_metric_families(generate_latest(registry).decode())
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in families:
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def test_prometheus_pulls() -> None:
    found = scraped()
    own = (("level", "own"), ("limit", "tpm"), ("outcome", "refused"), ("resource", "gpt"))
    assert found["zae_limiter_decisions_total"][own] == 1
    taken = (("direction", "taken"), ("limit", "tpm"), ("resource", "gpt"))
    assert found["zae_limiter_tokens_total"][taken] == 1_450
    key = (("limit", "rpm"), ("resource", "gpt"))
    assert found["zae_limiter_utilization_ratio_count"][key] == 7
    assert found["zae_limiter_utilization_ratio_bucket"][(("le", "0.25"), *key)] == 4
    assert found["zae_limiter_store_call_seconds_count"][(("error", ""), ("verb", "draw"))] == 7


def test_opentelemetry_pulls() -> None:
    tally, reader = Tally(look_every=1), InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    opentelemetry.observe(tally, provider.get_meter("test"))
    played(tally)
    data = reader.get_metrics_data()
    assert data is not None
    found = {
        metric.name: {
            tuple(sorted((point.attributes or {}).items())): point.value for point in metric.data.data_points
        }
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert sum(found["zae_limiter.decisions"].values()) == 7
    key = (("zae_limiter.direction", "taken"), ("zae_limiter.limit", "tpm"), ("zae_limiter.resource", "gpt"))
    assert found["zae_limiter.tokens"][key] == 1_450
    assert found["zae_limiter.utilization"][(("zae_limiter.limit", "rpm"), ("zae_limiter.resource", "gpt"))] == 0.0
    assert found["zae_limiter.store.calls"]
    provider.shutdown()


def test_refusals_are_events_of_the_callers_span() -> None:
    tracer = TracerProvider().get_tracer("test")
    tally = Tally()
    with tracer.start_as_current_span("request") as span:
        played(observers(tally, opentelemetry.span_events))
    events = span.events  # type: ignore[attr-defined]
    assert [event.name for event in events] == ["zae_limiter.refused"] * 2
    assert events[0].attributes["zae_limiter.limits"] == ("rpm",)
    assert sum(tally.numbers().decisions.values()) == 7
    played(opentelemetry.span_events)  # without a span: nothing to add to


DASHBOARD = {
    "type": "object",
    "required": ["title", "uid", "schemaVersion", "panels", "templating", "time"],
    "properties": {
        "uid": {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,40}$"},
        "schemaVersion": {"type": "integer", "minimum": 36},
        "panels": {
            "type": "array",
            "minItems": 8,
            "items": {
                "type": "object",
                "required": ["id", "title", "type", "datasource", "gridPos", "targets", "fieldConfig"],
                "properties": {
                    "id": {"type": "integer", "minimum": 1},
                    "type": {"enum": ["timeseries", "stat", "gauge", "table", "barchart"]},
                    "datasource": {"type": "object", "required": ["type", "uid"]},
                    "gridPos": {
                        "type": "object",
                        "required": ["x", "y", "w", "h"],
                        "properties": {"x": {"maximum": 23}, "w": {"maximum": 24}},
                    },
                    "targets": {
                        "type": "array",
                        "minItems": 1,
                        "items": {"type": "object", "required": ["refId", "expr"]},
                    },
                },
            },
        },
    },
}


def test_the_dashboard_is_one_and_asks_for_what_there_is() -> None:
    dashboard = json.loads(prometheus.dashboard())
    jsonschema.validate(dashboard, DASHBOARD)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]]
    assert len(set(places)) == len(places) == len({panel["id"] for panel in dashboard["panels"]})
    exported = {
        f"zae_limiter_{name}"
        for name in (
            *("decisions_total", "tokens_total", "unsettled_total", "warnings_total"),
            *(f"{h}_{part}" for h in ("utilization_ratio", "wait_seconds", "store_call_seconds")
              for part in ("bucket", "count", "sum")),
        )
    }  # fmt: skip
    assert exported >= scraped().keys()
    labels = {"resource", "outcome", "limit", "level", "direction", "le", "verb", "error"}
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            assert set(re.findall(r"zae_limiter_\w+", target["expr"])) <= exported
            named = re.findall(r"by \(([^)]*)\)", target["expr"]) + re.findall(r"{(\w+)=", target["expr"])
            assert {label.strip() for part in named for label in part.split(",")} <= labels
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= labels
