"""One call to a provider: what it takes, what is sent, and what it owes at its end.

The transports of ``httpx``, ``httpx2`` and ``requests`` do the sending; everything they decide is decided here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

from zae_limiter import LimitStatus, ValidationError
from zae_limiter.llm.calls import DEFAULT_OUTPUT, Call, read_call
from zae_limiter.llm.charges import CHARGES, Charges, amounts, levels_told
from zae_limiter.llm.meter import Meter
from zae_limiter.llm.refusals import Answer, Refusal, refusal
from zae_limiter.llm.usage import Usage

_CALLER: ContextVar[str | None] = ContextVar("zae_limiter_caller", default=None)

_NOT_IN_A_RESOURCE = re.compile(r"[#\x00-\x1f\x7f]")


@contextmanager
def calling_as(entity_id: str) -> Iterator[None]:
    """Calls in this block, and in tasks begun there, are this entity's, whatever the client was told."""
    token = _CALLER.set(entity_id)
    try:
        yield
    finally:
        _CALLER.reset(token)


class ClientOptions(TypedDict, total=False):
    """What a limited client may be told besides its entity.

    ``resource``: a name, or a function of the :class:`Call`; else the model. ``charges``: by limit, how much of it a
    usage is; else those of the provider. ``estimate``: a function of the call that says what to reserve. ``timeout``:
    seconds to wait for tokens. ``on_limit``: ``"respond"`` with the provider's own 429, or ``"raise"``.
    ``stream_usage``: ask for the usage of streams where a provider does not state it unasked. ``default_output``: the
    tokens of output that are reserved at most. ``feedback``: let buckets follow what the provider says is left.
    """

    resource: str | Callable[[Call], str] | None
    charges: Charges | None
    estimate: Callable[[Call], Usage] | None
    timeout: float
    on_limit: Literal["respond", "raise"]
    on_unavailable: str | None
    stream_usage: bool
    default_output: int
    feedback: bool


@dataclass(slots=True)
class ClientTerms:
    """What a limited client was told. ``unasked_hosts`` are those that refuse to be asked for usage."""

    entity: str | Callable[[Any], str]
    resource: str | Callable[[Call], str] | None = None
    charges: Charges | None = None
    estimate: Callable[[Call], Usage] | None = None
    timeout: float = 0.0
    on_limit: Literal["respond", "raise"] = "respond"
    on_unavailable: str | None = None
    stream_usage: bool = True
    default_output: int = DEFAULT_OUTPUT
    feedback: bool = True
    unasked_hosts: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        if self.on_limit not in ("respond", "raise"):
            raise ValidationError("on_limit", self.on_limit, 'must be "respond" or "raise"')

    @property
    def acquire_options(self) -> dict[str, Any]:
        """The options of every acquire, those that differ from the usual."""
        options: dict[str, Any] = {}
        if self.timeout:
            options["timeout"] = self.timeout
        if self.on_unavailable is not None:
            options["on_unavailable"] = self.on_unavailable
        return options

    def provider_call(self, request: Any, *, method: str, host: str, path: str, content: bytes) -> ProviderCall | None:
        """The call that a request is; ``None`` if it is to pass unlimited."""
        call = read_call(path, content, self.default_output) if method == "POST" else None
        if call is None:
            return None
        if self.estimate is not None:
            call = call._replace(estimate=self.estimate(call))
        entity = _CALLER.get() or (self.entity(request) if callable(self.entity) else self.entity)
        return ProviderCall(self, call, entity, host, content)

    def resource_of(self, call: Call) -> str:
        """What is limited: as told, else the model."""
        if self.resource is None:
            return _NOT_IN_A_RESOURCE.sub("_", call.model)
        return self.resource if isinstance(self.resource, str) else self.resource(call)


class ProviderCall:
    """One call, from its estimate to its cost. ``content`` is what is to be sent."""

    def __init__(self, terms: ClientTerms, call: Call, entity: str, host: str, content: bytes) -> None:
        self._terms = terms
        self._call = call
        self._charges = terms.charges or CHARGES[call.dialect]
        self._host = host
        self._original = content
        self._requests = 1
        self._meter: Meter | None = None
        self._status = 0
        self._asked = terms.stream_usage and host not in terms.unasked_hosts and _states_no_usage_unasked(call)
        self.content = _asking_for_usage(call) if self._asked else content
        self.entity = entity
        self.resource = terms.resource_of(call)
        self.wanted = amounts(self._charges, call.estimate)

    @property
    def is_changed(self) -> bool:
        """Whether something else is sent than the caller wrote."""
        return self._asked

    @property
    def accept_encoding(self) -> str:
        """What can be read on the way. An event of an encoded stream could not be hidden."""
        return "identity" if self._asked else "gzip, deflate"

    def refusal(self, error: Refusal) -> Answer | None:
        """What the provider's client is told instead of an answer; ``None`` if the error is to be raised."""
        return None if self._terms.on_limit == "raise" else refusal(self._call.dialect, error)

    def is_to_be_repeated(self, status: int) -> bool:
        """Whether a provider may have refused only what was added to the request."""
        return status == 400 and self._asked

    def repeat_unchanged(self) -> None:
        """The next request is as the caller wrote it."""
        self._asked = False
        self._requests += 1
        self.content = self._original

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        """The answer begins."""
        self._status = status
        if self._requests > 1 and status < 400:
            self._terms.unasked_hosts.add(self._host)
        self._meter = Meter(
            self._call,
            content_type=headers.get("content-type", ""),
            content_encoding=headers.get("content-encoding", ""),
            hides_usage=self._asked,
        )

    def levels_told(self, status: int, headers: Mapping[str, str], statuses: Iterable[LimitStatus]) -> dict[str, int]:
        """What the provider says is left, where that is less than what the entity holds."""
        held = {found.limit_name: found.available for found in statuses if found.entity_id == self.entity}
        return levels_told(self._call.dialect, status, headers, held)

    def has_news(self, status: int, headers: Mapping[str, str]) -> bool:
        """Whether the provider may say what is left."""
        return self._terms.feedback and (status == 429 or any("ratelimit" in name.lower() for name in headers))

    @property
    def meter(self) -> Meter:
        """What reads the answer."""
        assert self._meter is not None
        return self._meter

    def cost(self) -> dict[str, int]:
        """What the call cost. A provider that answers with an error counts the request, and no tokens."""
        if self._status >= 400:
            return self._amounts(Usage())
        return self._amounts(self.meter.used())

    def cost_without_answer(self, *, sent: bool) -> dict[str, int]:
        """What a call cost that was never answered: nothing, or if it was sent, the request and what it says."""
        if not sent:
            return amounts(self._charges, Usage(requests=self._requests - 1))
        return self._amounts(Usage(input=self._call.estimate.input))

    def _amounts(self, usage: Usage) -> dict[str, int]:
        return amounts(self._charges, usage._replace(requests=self._requests))


def _states_no_usage_unasked(call: Call) -> bool:
    """OpenAI's streams of chat and completions, and those of its kin."""
    if not call.streams or call.dialect != "openai" or not call.kind.endswith("completions"):
        return False
    options = call.body.get("stream_options")
    return options is None or (isinstance(options, dict) and "include_usage" not in options)


def _asking_for_usage(call: Call) -> bytes:
    options = call.body.get("stream_options") or {}
    return json.dumps({**call.body, "stream_options": {**options, "include_usage": True}}).encode()
