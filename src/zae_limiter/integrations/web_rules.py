"""Which requests of a web application are limited, what they take, and whose they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from zae_limiter import Limit, ValidationError

_NAME = re.compile(r"\\\{\w+\\\}")
_NOT_IN_AN_ID = re.compile(r"[^A-Za-z0-9_.\-:@]")


@dataclass(frozen=True, slots=True)
class Rule:
    """What requests under a path take. The first rule that matches holds; a request that none matches is not limited.

    ``path``: whole segments from the start of the path, with ``{names}`` for segments of any kind. ``resource`` and
    ``consume`` may be functions of the scope (ASGI) or environ (WSGI). ``exempt``: not limited.
    """

    path: str = "/"
    resource: str | Callable[[Any], str] = "http"
    consume: Mapping[str, int] | Callable[[Any], Any] = field(default_factory=lambda: {"requests": 1})
    methods: Collection[str] | None = None
    limits: Sequence[Limit] | None = None
    timeout: float = 0.0
    exempt: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not self.path.startswith("/"):
            raise ValidationError("path", self.path, "must begin with /")


class Rules:
    """Rules in their order."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = [(rule, _matcher(rule.path), _upper(rule.methods)) for rule in rules]

    def matching(self, method: str, path: str) -> Rule | None:
        """The rule that holds for a request; ``None`` if it is not limited."""
        for rule, matches, methods in self._rules:
            if (methods is None or method in methods) and matches(path):
                return None if rule.exempt else rule
        return None


def acquire_options(limits: Sequence[Limit] | None, timeout: float, on_unavailable: str | None) -> dict[str, Any]:
    """The options of an acquire that differ from the usual: one without any is faster."""
    given = {"limits": limits, "timeout": timeout or None, "on_unavailable": on_unavailable}
    return {name: value for name, value in given.items() if value is not None}


def keeps_failures(on_error: str) -> bool:
    """Whether a request that fails keeps what it took: then its lease ends as if it had succeeded."""
    if on_error not in ("keep", "refund"):
        raise ValidationError("on_error", on_error, 'must be "keep" or "refund"')
    return on_error == "keep"


def _matcher(path: str) -> Callable[[str], object]:
    """Whether a path lies at or under a rule's."""
    pattern = _NAME.sub("[^/]+", re.escape(path.rstrip("/")))
    return re.compile(rf"{pattern}(?:/|$)").match


def _upper(methods: Collection[str] | None) -> frozenset[str] | None:
    return None if methods is None else frozenset(method.upper() for method in methods)


def address_id(address: str | None) -> str:
    """The id of a caller of which only the network address is known."""
    return f"ip:{_NOT_IN_AN_ID.sub('_', address or 'unknown')}"


def forwarded(header: str | None, trusted_proxies: int) -> str | None:
    """The address that the outermost of the trusted proxies has seen, from ``X-Forwarded-For``.

    Whatever stands before it was written by the client, and proves nothing.
    """
    addresses = [address.strip() for address in (header or "").split(",") if address.strip()]
    return addresses[-trusted_proxies] if 0 < trusted_proxies <= len(addresses) else None
