"""What ``open`` of an async class returns, and which options it takes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterable
from types import TracebackType
from typing import Any, Generic, Literal, Protocol, Self, TypedDict, TypeVar

from zae_limiter.models.choices import OnUnavailable
from zae_limiter.models.events import Observer
from zae_limiter.models.limit import Limit
from zae_limiter.running.clocks import Clock


class StoreOptions(TypedDict, total=False):
    """What only some stores know; the others refuse it. Redis: ``credentials``; DynamoDB: the others."""

    transport: Literal["own", "botocore"]
    coalesce: bool
    wcu: int
    credentials: Callable[[], tuple[str, str] | tuple[str]]


class OpenOptions(StoreOptions, total=False):
    """The options of ``open``. ``Repository.open`` says what they mean."""

    create: bool
    clock: Clock | None
    observer: Observer | None
    deadline: float
    config_cache_ttl: float
    limits: Iterable[Limit] | None
    keep_holds: bool
    pulse: bool | None
    on_unavailable: OnUnavailable | str | None
    local_share: float | None


class Closable(Protocol):
    """What is opened: an async context manager of itself."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


Opened = TypeVar("Opened", bound=Closable)


class Opening(Coroutine[Any, Any, Opened], Generic[Opened]):
    """A coroutine that opens something, which ``async with`` takes as well, with and without ``await``."""

    __slots__ = ("_coroutine", "_opened")

    _opened: Opened

    def __init__(self, coroutine: Coroutine[Any, Any, Opened]) -> None:
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, Opened]:
        return self._coroutine.__await__()

    async def __aenter__(self) -> Opened:
        self._opened = await self._coroutine
        return await self._opened.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._opened.__aexit__(kind, error, trace)

    def send(self, value: Any, /) -> Any:
        """As of the coroutine."""
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        """As of the coroutine."""
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """As of the coroutine."""
        self._coroutine.close()
