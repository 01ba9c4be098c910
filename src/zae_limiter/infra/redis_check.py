"""Asks Redis servers whether they are fit to keep limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from zae_limiter.exceptions import ConfigurationError, RateLimiterUnavailable, ValidationError
from zae_limiter.running.clocks import machine_clock
from zae_limiter.running.sync_driver import SyncDriver
from zae_limiter.stores.open_store import open_store
from zae_limiter.stores.redis.acl import rule
from zae_limiter.stores.redis.server_report import Finding, facts_in, findings_in
from zae_limiter.stores.redis.urls import SCHEMES, Servers, servers_of

if TYPE_CHECKING:
    from zae_limiter.stores.redis.store import RedisStore

DEADLINE_S = 5.0


class ServerReport(NamedTuple):
    """What was found about one server."""

    where: str
    findings: tuple[Finding, ...]

    @property
    def advice(self) -> tuple[str, ...]:
        """What is to be done."""
        return tuple(f"{finding.what}: {finding.advice}" for finding in self.findings if finding.advice)


def is_redis(url: str | None) -> bool:
    """Whether a URL names Redis servers."""
    return url is not None and urlsplit(url).scheme in SCHEMES


def check_servers(url: str) -> list[ServerReport]:
    """What is found about every server that the URL names. One that does not answer raises."""
    if not is_redis(url):
        raise ValidationError("url", url, "must name Redis or Valkey servers, like redis://host")
    open_store(url, deadline=DEADLINE_S, options={}).close()  # says what is wrong with the URL, or missing here
    servers = servers_of(urlsplit(url))
    if servers.way == "cluster":
        return [_report(servers._replace(way="", addresses=(address,))) for address in servers.addresses]
    return [_report(servers)]


def _report(servers: Servers) -> ServerReport:
    from zae_limiter.stores.redis.store import RedisStore

    store = RedisStore(servers, deadline=DEADLINE_S)
    driver = SyncDriver(machine_clock, store.perform)
    try:
        driver.run(store.ping())
        return ServerReport(servers.shown, (*_settings(store, driver), *_permissions(store, driver)))
    finally:
        store.close()


def _settings(store: RedisStore, driver: SyncDriver) -> list[Finding]:
    try:
        return findings_in(facts_in(driver.run(store.info())))
    except (ConfigurationError, RateLimiterUnavailable) as error:
        return [Finding("settings", "cannot be read", f"allow this user INFO: {error}")]


def _permissions(store: RedisStore, driver: SyncDriver) -> list[Finding]:
    try:
        driver.run(store.space("default", corrected=True).status("zael-check", None, 0))
    except (ConfigurationError, RateLimiterUnavailable) as error:
        return [Finding("permissions", str(error), f"allow this user: {rule()}")]
    return [Finding("permissions", "reads and scripts are allowed")]
