"""From a URL to a store."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from zae_limiter.exceptions import MissingExtra, ValidationError
from zae_limiter.naming import check_stack_name
from zae_limiter.stores.protocol import Store
from zae_limiter.stores.redis.urls import SCHEMES, servers_of

if TYPE_CHECKING:
    from zae_limiter.stores.dynamodb.transport.protocol import Target

URL_VARIABLE = "ZAEL_URL"

SHOWN_SCHEMES = ("memory", "sqlite", "dynamodb", "redis", "valkey", "redis+cluster", "redis+sentinel", "redis+unix")

DEFAULT_CONFIG_CACHE_TTL = 60.0
"""How many seconds resolved limits are remembered unless the caller says otherwise."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

SHORTEST_TABLE_NAME = 3
"""DynamoDB's own rule."""

DYNAMODB_URL_SHAPE = "must be dynamodb://STACK, then ?region=…&endpoint_url=… if need be"


class Settings(NamedTuple):
    """What every store is told."""

    deadline: float
    """Seconds one verb may take."""
    config_cache_ttl: float
    """Seconds resolved limits may be remembered, where they have to be."""
    options: Mapping[str, Any]
    """What only this kind of store knows."""


def _memory(url: SplitResult, settings: Settings) -> Store:
    from zae_limiter.stores.memory.store import MemoryStore

    if url.netloc or url.path.strip("/") or url.query:
        raise ValidationError("url", url.geturl(), "memory:// takes nothing after it")
    _refuse(settings.options)
    return MemoryStore()


def _sqlite(url: SplitResult, settings: Settings) -> Store:
    from zae_limiter.stores.sqlite.store import SqliteStore

    if url.netloc not in ("", "localhost") or url.query or url.fragment or not url.path.strip("/"):
        raise ValidationError("url", url.geturl(), "must be sqlite:///path/to/file.db (absolute: sqlite:////path)")
    _refuse(settings.options)
    path = unquote(url.path).removeprefix("/")
    if "\0" in path or path.endswith("/"):
        raise ValidationError("url", url.geturl(), "must name a file, like sqlite:///limits.db")
    return SqliteStore(path, deadline=settings.deadline)


def _dynamodb(url: SplitResult, settings: Settings) -> Store:
    from zae_limiter.stores.dynamodb.store import DynamoStore
    from zae_limiter.stores.dynamodb.transport.protocol import TRANSPORT_KINDS
    from zae_limiter.stores.dynamodb.write_load import PARTITION_WCU

    table, target = _table_and_target(url)
    options = dict(settings.options)
    how = options.pop("transport", "own")
    if how not in TRANSPORT_KINDS:
        raise ValidationError("transport", how, f"must be one of {', '.join(TRANSPORT_KINDS)}")
    coalesce = options.pop("coalesce", True)
    if not isinstance(coalesce, bool):
        raise ValidationError("coalesce", coalesce, "must be True or False")
    wcu = options.pop("wcu", PARTITION_WCU)
    if isinstance(wcu, bool) or not isinstance(wcu, int) or wcu < 1:
        raise ValidationError("wcu", wcu, "must be a whole number of writes a second, at least 1")
    _refuse(options)
    return DynamoStore(
        table,
        target,
        deadline=settings.deadline,
        config_cache_ttl=settings.config_cache_ttl,
        how=how,
        coalesce=coalesce,
        wcu=wcu,
    )


def _table_and_target(url: SplitResult) -> tuple[str, Target]:
    """Which table a URL names, and where it is."""
    from zae_limiter.stores.dynamodb.transport.protocol import Target
    from zae_limiter.stores.dynamodb.transport.settings import (
        LOCAL_REGION,
        REGION_SHAPE,
        InvalidEndpoint,
        endpoint_at,
        is_region,
    )

    if url.path.strip("/") or url.fragment or "@" in url.netloc or ":" in url.netloc:
        raise ValidationError("url", url.geturl(), DYNAMODB_URL_SHAPE)
    table = check_stack_name(url.netloc, "url")
    if len(table) < SHORTEST_TABLE_NAME:
        raise ValidationError("url", url.geturl(), "names a table, which has at least three characters")
    given: dict[str, str] = {}
    for name, value in parse_qsl(url.query, keep_blank_values=True):
        if name not in ("region", "endpoint_url") or name in given or not value:
            raise ValidationError("url", url.geturl(), DYNAMODB_URL_SHAPE)
        given[name] = value
    region, endpoint = given.get("region"), given.get("endpoint_url")
    if region is not None and not is_region(region):
        raise ValidationError("region", region, REGION_SHAPE)
    if endpoint is not None:
        try:
            endpoint_at(endpoint, region or LOCAL_REGION)
        except InvalidEndpoint:
            shown = re.sub("//.*@", "//…@", endpoint)  # what stands before an @ may be a password
            raise ValidationError("endpoint_url", shown, "must be like http://host:port or https://host") from None
    return table, Target(region, endpoint)


def _redis(url: SplitResult, settings: Settings) -> Store:
    options = dict(settings.options)
    servers = servers_of(url, options.pop("credentials", None))
    _refuse(options)
    try:
        from zae_limiter.stores.redis.store import RedisStore
    except ImportError as error:
        if error.name is None or error.name.partition(".")[0] != "redis":
            raise
        raise MissingExtra("redis", store="Redis") from error
    return RedisStore(servers, deadline=settings.deadline)


OPENERS: Mapping[str, Callable[[SplitResult, Settings], Store]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "dynamodb": _dynamodb,
    **dict.fromkeys(SCHEMES, _redis),
}


def open_store(
    url: str | None,
    *,
    deadline: float,
    config_cache_ttl: float = DEFAULT_CONFIG_CACHE_TTL,
    options: Mapping[str, Any],
) -> Store:
    """The store of ``url``, else of the environment's ``ZAEL_URL``, else of the user's own data folder.

    Opening reads and writes nothing.
    """
    url, _ = without_pulse(url)
    given = url if url is not None else os.environ.get(URL_VARIABLE) or default_url()
    if not isinstance(given, str):
        raise ValidationError("url", given, "must be a string")
    if _CONTROL.search(given):  # urlsplit would drop some of them silently
        raise ValidationError("url", given, "has a control character in it")
    try:
        parts = urlsplit(given)
    except ValueError as error:
        raise ValidationError("url", given, f"is not a URL: {error}") from None
    opener = OPENERS.get(parts.scheme)
    if opener is None or not given.startswith(f"{parts.scheme}://"):
        known = ", ".join(f"{scheme}://" for scheme in SHOWN_SCHEMES)
        raise ValidationError("url", given, f"must begin with one of {known}")
    return opener(parts, Settings(deadline, config_cache_ttl, options))


def without_pulse(url: str | None) -> tuple[str | None, bool | None]:
    """The URL of the store without what it says of the pulse, and what that is: ``?pulse=on``, ``off`` or nothing."""
    given = url if url is not None else os.environ.get(URL_VARIABLE)
    if not isinstance(given, str) or "pulse=" not in given:
        return url, None
    address, _, query = given.partition("?")
    pairs = query.split("&")
    said = [pair.removeprefix("pulse=") for pair in pairs if pair.startswith("pulse=")]
    if not said:
        return url, None
    if len(said) > 1 or said[0] not in ("on", "off"):
        raise ValidationError("url", given, "has pulse=on or pulse=off, once")
    rest = "&".join(pair for pair in pairs if not pair.startswith("pulse="))
    return f"{address}?{rest}" if rest else address, said[0] == "on"


def place_in_environment() -> Target | None:
    """Where the table of ``ZAEL_URL`` is; ``None`` if that names no DynamoDB table."""
    url = urlsplit(os.environ.get(URL_VARIABLE, ""))
    return _table_and_target(url)[1] if url.scheme == "dynamodb" else None


def default_url() -> str:
    """A SQLite file in the folder where this user's programs keep their data."""
    from platformdirs import user_data_path

    return f"sqlite:///{quote(str(user_data_path('zae-limiter', appauthor=False) / 'limits.db'))}"


_ALWAYS_ON = {"speculative_writes": "is no option: acquires are written at once always, on every store; leave it out"}


def _refuse(options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        raise ValidationError(name, value, _ALWAYS_ON.get(name, "is not an option of this store"))
