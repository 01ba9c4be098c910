"""A tally for OpenTelemetry, whose readers pull it, and events on the caller's own spans.

::

    tally = Tally()
    limiter = SyncRateLimiter.open(url, observer=observers(tally, span_events))
    opentelemetry.observe(tally, metrics.get_meter("my-service"))

No instrument is on the way of an acquire: all are observable. There is no observable histogram, so times are counted
as a number of calls and their sum, and utilization is a gauge of the latest acquire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from opentelemetry import trace
from opentelemetry.metrics import CallbackOptions, Meter, Observation, get_meter

from zae_limiter import Decided, Degraded, Event, Settled
from zae_limiter.integrations.tally import Numbers, Tally, observers

__all__ = ["observe", "observers", "span_events"]

PREFIX = "zae_limiter."

Read = Callable[[Numbers], Iterable[tuple[float, Mapping[str, str]]]]


def observe(tally: Tally, meter: Meter | None = None) -> None:
    """Make the numbers of a tally instruments of a meter (of this library's, if none is given)."""
    meter = meter or get_meter("zae_limiter")
    for name, unit, read in _COUNTERS:
        meter.create_observable_counter(PREFIX + name, [_callback(tally, read)], unit=unit)
    meter.create_observable_gauge(PREFIX + "utilization", [_callback(tally, _utilization)], unit="1")


def span_events(event: Event) -> None:
    """An observer that adds events to the span of the caller: refusals, waits, degradation, what was not settled."""
    span = trace.get_current_span()
    if not span.is_recording():
        return
    if isinstance(event, Decided):
        if event.granted and not event.waited_seconds:
            return
        attributes: dict[str, Any] = {"resource": event.resource, "entity": event.entity_id}
        lacking = [status.limit_name for status in event.statuses if status.refuses]
        if lacking:
            attributes["limits"] = lacking
        if event.waited_seconds:
            attributes["waited_seconds"] = event.waited_seconds
        _add(span, "granted" if event.granted else "refused", attributes)
    elif isinstance(event, Degraded):
        _add(span, "degraded", {"resource": event.resource, "cause": repr(event.cause)})
    elif isinstance(event, Settled) and event.error is not None:
        _add(span, "unsettled", {"resource": event.resource, "cause": repr(event.error)})


def _add(span: trace.Span, name: str, attributes: Mapping[str, Any]) -> None:
    span.add_event(PREFIX + name, {PREFIX + key: value for key, value in attributes.items()})


def _callback(tally: Tally, read: Read) -> Callable[[CallbackOptions], list[Observation]]:
    def observed(options: CallbackOptions) -> list[Observation]:
        return [
            Observation(value, {PREFIX + name: label for name, label in labels.items()})
            for value, labels in read(tally.numbers())
        ]

    return observed


def _decisions(numbers: Numbers) -> Iterable[tuple[float, Mapping[str, str]]]:
    return [(count, key._asdict()) for key, count in numbers.decisions.items()]


def _tokens(numbers: Numbers) -> Iterable[tuple[float, Mapping[str, str]]]:
    return [(count, key._asdict()) for key, count in numbers.tokens.items()]


def _warnings(numbers: Numbers) -> Iterable[tuple[float, Mapping[str, str]]]:
    return [(count, key._asdict()) for key, count in numbers.warnings.items()]


def _unsettled(numbers: Numbers) -> Iterable[tuple[float, Mapping[str, str]]]:
    return [(count, {"resource": resource}) for resource, count in numbers.unsettled.items()]


def _utilization(numbers: Numbers) -> Iterable[tuple[float, Mapping[str, str]]]:
    return [(permille / 1000, key._asdict()) for key, permille in numbers.latest_permille.items()]


def _waits(numbers: Numbers) -> Iterable[tuple[float, Mapping[str, str]]]:
    return [(sum(found.counts), {"resource": resource}) for resource, found in numbers.waits.items()]


def _wait_time(numbers: Numbers) -> Iterable[tuple[float, Mapping[str, str]]]:
    return [(found.total / 1000, {"resource": resource}) for resource, found in numbers.waits.items()]


def _store_calls(numbers: Numbers) -> Iterable[tuple[float, Mapping[str, str]]]:
    return [(sum(found.counts), key._asdict()) for key, found in numbers.store_calls.items()]


def _store_time(numbers: Numbers) -> Iterable[tuple[float, Mapping[str, str]]]:
    return [(found.total / 1000, key._asdict()) for key, found in numbers.store_calls.items()]


_COUNTERS: tuple[tuple[str, str, Read], ...] = (
    ("decisions", "{decision}", _decisions),
    ("tokens", "{token}", _tokens),
    ("warnings", "{warning}", _warnings),
    ("unsettled", "{settlement}", _unsettled),
    ("waits", "{wait}", _waits),
    ("wait.time", "s", _wait_time),
    ("store.calls", "{call}", _store_calls),
    ("store.call.time", "s", _store_time),
)
