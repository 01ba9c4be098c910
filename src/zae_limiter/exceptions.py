"""One family of errors.

Everything this library raises on purpose derives from :class:`ZAELimiterError`. The branches answer the
question a handler asks first: is the caller over a limit (:class:`RateLimitExceeded`), did the caller ask
for something impossible (:class:`ValidationError` and the other ``ValueError``/``LookupError`` kin), has an operator
shut the caller out (:class:`AccessBlocked`), is the store not answering (:class:`RateLimiterUnavailable`), or can it
never, as it is set up (:class:`ConfigurationError`)?
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, Self

from zae_limiter.extras import install_command

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from zae_limiter.models.access import Access
    from zae_limiter.models.status import LimitStatus

_SHOWN_VALUE_LENGTH = 80


class ZAELimiterError(Exception):
    """Base of every error this library raises on purpose."""


class ValidationError(ZAELimiterError, ValueError):
    """An argument cannot be used. Nothing was taken, nothing was changed.

    ``field`` names the argument, ``value`` is what was given, ``reason`` says what would be right.
    """

    def __init__(self, field: str, value: object, reason: str) -> None:
        self.field = field
        self.value = value
        self.reason = reason
        super().__init__(field, value, reason)

    def __str__(self) -> str:
        try:
            shown = repr(self.value)
        except ValueError:
            shown = "a number with thousands of digits"
        if len(shown) > _SHOWN_VALUE_LENGTH:
            shown = shown[: _SHOWN_VALUE_LENGTH - 1] + "…"
        return f"{self.field}: {self.reason} (got {shown})"


class EntityNotFoundError(ZAELimiterError, LookupError):
    """No entity of this id exists in the namespace."""

    def __init__(self, entity_id: str) -> None:
        self.entity_id = entity_id
        super().__init__(entity_id)

    def __str__(self) -> str:
        return f"no entity {self.entity_id!r} in this namespace; create it with create_entity()"


class EntityExistsError(ZAELimiterError):
    """An entity of this id exists already."""

    def __init__(self, entity_id: str) -> None:
        self.entity_id = entity_id
        super().__init__(entity_id)

    def __str__(self) -> str:
        return f"entity {self.entity_id!r} exists already; change it with update_entity()"


class EntityChangedError(ZAELimiterError):
    """``update_entity(expected_version=…)`` met another version: another client changed the entity meanwhile."""

    def __init__(self, entity_id: str, expected: int, found: int) -> None:
        self.entity_id = entity_id
        self.expected = expected
        self.found = found
        super().__init__(entity_id, expected, found)

    def __str__(self) -> str:
        return (
            f"entity {self.entity_id!r} is at version {self.found}, not {self.expected}; "
            "read it again and repeat the change"
        )


class LimitsChangedError(ZAELimiterError):
    """A change of limits named an ``expected_version``, and met another: another client changed them meanwhile."""

    def __init__(self, level: str, expected: str, found: str) -> None:
        self.level = level
        self.expected = expected
        self.found = found
        super().__init__(level, expected, found)

    def __str__(self) -> str:
        return (
            f"the limits of {self.level} are at version {self.found}, not {self.expected}; "
            "read them again and repeat the change"
        )


class NamespaceNotFoundError(ZAELimiterError, LookupError):
    """The namespace is not registered, or it was deleted (and may be recovered)."""

    def __init__(self, namespace: str, *, deleted: bool = False) -> None:
        self.namespace = namespace
        self.deleted = deleted
        super().__init__(namespace)

    def __str__(self) -> str:
        if self.deleted:
            return f"namespace {self.namespace!r} is deleted; recover_namespace() brings it back"
        return f"no namespace {self.namespace!r}; register it with register_namespace()"


class LeaseExpiredError(ZAELimiterError):
    """The lease is over: its ``with`` block has ended, or has not begun."""


class LeaseNotFoundError(ZAELimiterError, LookupError):
    """No lease with this token is recorded in the namespace: it never was, or it has expired, and stays charged."""

    def __init__(self, token: str) -> None:
        self.token = token
        super().__init__(token)

    def __str__(self) -> str:
        return f"no lease {self.token!r} in this namespace; it may have expired, and then stays charged"


class VersionError(ZAELimiterError):
    """The stored data has a layout that this version of the library cannot use."""


class MissingExtra(ZAELimiterError, ImportError):
    """The packages that an optional part needs are not installed."""

    def __init__(self, package: str | None, *, store: str = "DynamoDB") -> None:
        self.package = package
        self.store = store
        super().__init__(package)

    def __str__(self) -> str:
        return f"the {self.store} store needs {self.package}: {install_command(self.store.lower())}"


class StackOperationError(ZAELimiterError):
    """Creating, changing or deleting a deployment failed."""


class ConfigurationError(ZAELimiterError):
    """The store cannot be used as it is set up.

    There is no such table or region, credentials are missing, denied or expired, a file is no database or may not be
    written, a request is rejected. Trying again does not help; ``hint`` says what may. ``__cause__`` has the native
    error. Acquires raise it in every mode until the store has answered this process once; from then on they follow
    ``on_unavailable``.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.hint = hint
        super().__init__(message)

    def __str__(self) -> str:
        message = str(self.args[0])
        return f"{message}; {self.hint}" if self.hint else message


class RateLimiterUnavailable(ZAELimiterError):
    """The store did not answer in time, or could not do what was asked. ``__cause__`` has the native error.

    ``hint`` says what may help. ``ambiguous``: the store may have done what was asked all the same. ``remaining``:
    of several settlements, those to repeat (``None`` when the store cannot tell).
    """

    remaining: Sequence[Any] | None = None

    def __init__(self, message: str, *, hint: str | None = None, ambiguous: bool = False) -> None:
        self.hint = hint
        self.ambiguous = ambiguous
        super().__init__(message)

    def __str__(self) -> str:
        message = str(self.args[0])
        return f"{message}; {self.hint}" if self.hint else message


class AccessBlocked(ZAELimiterError):
    """An access switch blocks the call. Nothing was taken, and trying again does not help: only an operator does.

    ``access`` is the switch that blocks, and says whose it is and when it ends. No policy for an unavailable store
    overrules it.
    """

    statuses: tuple[LimitStatus, ...] = ()
    """No limit was looked at."""

    def __init__(self, entity_id: str, resource: str, access: Access) -> None:
        self.entity_id = entity_id
        self.resource = resource
        self.access = access
        super().__init__(entity_id, resource, access)

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready description, for the body of a 403 answer: it does not say whose switch it is."""
        until = self.access.until
        return {
            "error": "access_blocked",
            "message": f"access of {self.entity_id} to {self.resource} is blocked",
            "until": None if until is None else until.isoformat(),
        }

    def __str__(self) -> str:
        until = "" if self.access.until is None else f" until {self.access.until.isoformat()}"
        return (
            f"{self.entity_id} is blocked on {self.resource}{until} by the switch of {self.access.label}; "
            "set_access('enforce') or zae-limiter unblock lifts it"
        )


def _urgency(status: LimitStatus) -> tuple[bool, bool, float]:
    wait = status.retry_after_seconds
    return wait is None, not status.at_latest, wait or 0.0


class Reason(Protocol):
    """Why a request was refused. Its statuses may be made when they are read."""

    @property
    def statuses(self) -> tuple[LimitStatus, ...]: ...


class RateLimitExceeded(ZAELimiterError):
    """At least one limit of one leg lacks tokens. Nothing was taken anywhere.

    ``statuses`` has every limit of every leg (the entity first, then its ancestors), so that a handler can
    show all of them; ``violations`` those that lack, ``passed`` the others. All three are empty if the store was under
    so much load that it could not even say which limits hold; ``retry_after_seconds`` says when to ask again.
    """

    unread_wait_seconds = 0.0
    _reason: Reason

    def __init__(self, statuses: Iterable[LimitStatus], *, unread_wait_seconds: float = 0.0) -> None:
        self.statuses = tuple(statuses)
        if unread_wait_seconds:
            self.unread_wait_seconds = unread_wait_seconds
        super().__init__(self.statuses)

    @classmethod
    def _because(cls, reason: Reason, wait_ms: int | None) -> Self:
        """The error for a refusal whose wait is known; many callers read nothing else of it."""
        error = cls.__new__(cls)
        error._reason = reason
        if wait_ms is not None:
            error.retry_after_seconds = wait_ms / 1000
        return error

    def __reduce__(self) -> tuple[Any, ...]:
        rest = {name: value for name, value in self.__dict__.items() if name not in ("_reason", "statuses")}
        return type(self), (self.statuses,), rest

    @cached_property
    def statuses(self) -> tuple[LimitStatus, ...]:
        """Every limit of every leg: the entity first, then its ancestors."""
        return self._reason.statuses

    @property
    def violations(self) -> tuple[LimitStatus, ...]:
        """The limits that lack, and refuse."""
        return tuple(status for status in self.statuses if status.refuses)

    @property
    def passed(self) -> tuple[LimitStatus, ...]:
        """The limits that had enough, and those that only watch."""
        return tuple(status for status in self.statuses if not status.refuses)

    @property
    def primary_violation(self) -> LimitStatus:
        """The violation with the longest wait; one that can never be met counts as the longest.

        A limit that knows its wait goes before one that only knows a bound. ``ValueError`` if there is none: see
        ``statuses``.
        """
        return max(self.violations, key=_urgency)

    @cached_property
    def retry_after_seconds(self) -> float | None:
        """Seconds until the same request would be granted if no other takes; ``None``: never. 0 if nothing lacks.

        A call in flight may end at any moment: such a limit counts with a second at most. Without statuses: until it
        is worth asking again.
        """
        waits = [status.suggested_wait_seconds for status in self.violations]
        if not waits:
            return self.unread_wait_seconds
        return None if None in waits else max(wait for wait in waits if wait is not None)

    @property
    def retry_after_header(self) -> str:
        """The value of an HTTP ``Retry-After`` header: whole seconds, rounded up (empty when never)."""
        wait = self.retry_after_seconds
        return "" if wait is None else str(-int(-wait // 1))

    def as_dict(self, *, ancestors: bool = False) -> dict[str, Any]:
        """A JSON-ready description, for the body of a 429 answer or a log line.

        It has the limits of the entity that asked. What its ancestors have left is none of a caller's business: it
        takes ``ancestors=True`` to have theirs too, and what the message says of them.
        """
        shown = [status for status in self.statuses if ancestors or status.entity_id == self.statuses[0].entity_id]
        hidden = not ancestors and len(self.violations) > sum(status.refuses for status in shown)
        return {
            "error": "rate_limit_exceeded",
            "message": self._message_without_ancestors() if hidden else str(self),
            "retry_after_seconds": self.retry_after_seconds,
            "violations": [status.as_dict() for status in shown if status.refuses],
            "passed": [status.as_dict() for status in shown if not status.refuses],
        }

    def _message_without_ancestors(self) -> str:
        own, wait = self.statuses[0], self.retry_after_seconds
        outlook = "this can never be granted" if wait is None else f"retry in {wait:.3f} s"
        return f"a limit that {own.entity_id} shares with others lacks on {own.resource}; {outlook}"

    def __str__(self) -> str:
        if not self.violations:
            if self.unread_wait_seconds:
                return f"the store is under too much load; retry in {self.unread_wait_seconds:.3f} s"
            return "rate limit exceeded"
        primary = self.primary_violation
        wait = primary.retry_after_seconds
        others = len(self.violations) - 1
        more = f" (and {others} more)" if others else ""
        outlook = (
            f"its burst is {primary.limit.burst}, so this can never be granted"
            if wait is None
            else f"one may come free at any moment, and does in {wait:.0f} s at the latest"
            if primary.at_latest
            else f"retry in {wait:.3f} s"
        )
        return (
            f"{primary.limit_name} of {primary.entity_id} on {primary.resource}: requested "
            f"{primary.requested}, available {primary.available}; {outlook}{more}"
        )


class RequestExceedsBurst(RateLimitExceeded):
    """An amount is larger than the burst of its limit: no wait will ever be long enough."""

    @cached_property
    def retry_after_seconds(self) -> None:
        """Never."""
        return
