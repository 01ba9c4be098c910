"""What the store needs from whoever carries its calls: one method, in each world."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from zae_limiter.stores.dynamodb.requests import Reply


class Credentials(NamedTuple):
    """Static credentials, for those who do not leave them to botocore."""

    access_key: str
    secret_key: str
    session_token: str | None = None

    def __repr__(self) -> str:
        return f"Credentials({self.access_key!r}, …)"


class Target(NamedTuple):
    """Which DynamoDB. What is ``None`` is found by botocore, in the environment and in its files."""

    region: str | None = None
    endpoint_url: str | None = None
    credentials: Credentials | None = None


class Transport(Protocol):
    """Carries calls for threads. Safe to share between them, and with a forked child."""

    def call(self, operation: str, params: Mapping[str, Any], seconds: float) -> Reply:
        """DynamoDB's reply, in its own JSON. Raises ``Refused``, or ``NoAnswer`` after about ``seconds``."""
        ...

    def close(self) -> None:
        """Close the connections. A later call opens new ones."""
        ...


class AsyncTransport(Protocol):
    """Carries calls for event loops, several after or beside each other."""

    async def call(self, operation: str, params: Mapping[str, Any], seconds: float) -> Reply:
        """DynamoDB's reply, in its own JSON. Raises ``Refused`` or ``NoAnswer``, after ``seconds`` at the latest."""
        ...

    async def close(self) -> None:
        """Close the connections. A later call opens new ones."""
        ...
