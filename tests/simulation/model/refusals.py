"""How the model says no."""

from __future__ import annotations

from zae_limiter.stores.dynamodb.requests import Refused

VALIDATION_FAILED = "ValidationException"


class NotModelled(NotImplementedError):
    """DynamoDB has an answer to this, but the model does not know it."""


class RefusedOutright(Refused):
    """What refuses a whole transaction, although only one of its writes is wrong."""


def invalid(message: str) -> Refused:
    """A request that is wrong whatever the table holds, or wrong for what it holds."""
    return Refused(VALIDATION_FAILED, message)


def invalid_values(message: str) -> Refused:
    """A request with a value that cannot be stored or compared."""
    return invalid(f"One or more parameter values were invalid: {message}")
