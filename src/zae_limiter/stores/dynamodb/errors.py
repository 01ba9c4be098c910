"""What refusals and silences of DynamoDB mean to a caller: the one border where they become errors of this library."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from zae_limiter.exceptions import RateLimiterUnavailable, VersionError
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.items import BrokenItem
from zae_limiter.stores.dynamodb.requests import TABLE_NOT_FOUND, NoAnswer, Refused

if TYPE_CHECKING:
    from zae_limiter.stores.dynamodb.table_client import TableClient


Arguments = ParamSpec("Arguments")
Owner = TypeVar("Owner")
Result = TypeVar("Result")

_HINTS = {
    TABLE_NOT_FOUND: "deploy it, or open it once with create=True; check the name, the region and the endpoint",
    "AccessDeniedException": "the credentials in use lack a permission on this table",
    "UnrecognizedClientException": "the credentials in use are not valid here",
    "ExpiredTokenException": "the credentials in use have expired",
    "InvalidSignatureException": "check the secret key and this machine's clock",
    "ValidationException": "the table may have another layout, or this is a bug; please report it",
}


def unavailable(failure: Refused | NoAnswer) -> RateLimiterUnavailable:
    """The error callers see when DynamoDB refused for another reason than theirs, or did not answer."""
    if isinstance(failure, NoAnswer):
        message = f"DynamoDB did not answer: {failure}"
        error = RateLimiterUnavailable(message, ambiguous=failure.sent)
    else:
        hint = "it is under too much load" if failure.by_throttling else _HINTS.get(failure.code)
        error = RateLimiterUnavailable(f"DynamoDB refused: {failure}", hint=hint)
    error.__cause__ = failure.__cause__ or failure
    return error


def verb(
    method: Callable[Concatenate[Owner, Arguments], Plan[Result]],
) -> Callable[Concatenate[Owner, Arguments], Plan[Result]]:
    """A plan method whose callers see this library's errors, never DynamoDB's."""

    @wraps(method)
    def plan(self: Any, /, *args: Any, **kwargs: Any) -> Plan[Result]:
        try:
            return (yield from method(self, *args, **kwargs))
        except (Refused, NoAnswer) as failure:
            raise unavailable(failure) from (failure.__cause__ or failure)
        except BrokenItem as broken:
            raise VersionError(str(broken)) from broken

    return plan


def table_client_of(store: Any) -> TableClient | None:
    """What plans on the table of a store ask with; ``None`` if the store is no DynamoDB table."""
    client: TableClient | None = getattr(store, "client", None)
    return client
