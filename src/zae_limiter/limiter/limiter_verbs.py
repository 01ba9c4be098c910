"""What a limiter does, written once: taking, and reads as plans."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Generic, Literal, TypeVar, cast

from zae_limiter.exceptions import LeaseNotFoundError, NamespaceNotFoundError, ValidationError
from zae_limiter.lease.lease_base import LeaseBase
from zae_limiter.lease.lease_ids import new_writer
from zae_limiter.lease.lease_options import DEFAULT_OPTIONS, LeaseIdentity, LeaseOptions, lease_options
from zae_limiter.lease.recorded_ledger import DEFAULT_LIFETIME_S, record_id_of
from zae_limiter.models.choices import AccessMode, OnError, OnUnavailable
from zae_limiter.models.leases import LeaseInfo
from zae_limiter.models.limit import Limit, check_limits
from zae_limiter.models.moments import at
from zae_limiter.models.reports import Page
from zae_limiter.models.status import Check, EntityStatus
from zae_limiter.naming import (
    check_bucket_resource,
    check_consume,
    check_entity_id,
    check_key,
    check_limit_name,
    check_principal,
    check_request_id,
    check_resource,
)
from zae_limiter.repository.arguments import check_cursor, check_flag, check_levels, check_page_size
from zae_limiter.repository.core import Core
from zae_limiter.running.plan import READ_CLOCK, Plan
from zae_limiter.stores.lease_records import LeaseRecord
from zae_limiter.stores.operator_changes import Credit, Reset

SomeLease = TypeVar("SomeLease", bound=LeaseBase)

LIFETIME_MS = DEFAULT_LIFETIME_S * 1000

new_object = object.__new__
REFUND = OnError.REFUND  # looked up once: an enum is slow to ask


class LimiterVerbs(Generic[SomeLease]):
    """Taking, and the reads of a limiter."""

    _core: Core
    _driver: Any
    _lease_type: type[SomeLease]

    def acquire(
        self,
        entity_id: str,
        resource: str,
        consume: Mapping[str, int],
        *,
        limits: Iterable[Limit] | None = None,
        timeout: float = 0,
        on_unavailable: OnUnavailable | str | None = None,
        on_error: OnError | str = OnError.REFUND,
        request_id: str | None = None,
    ) -> SomeLease:
        """Take ``consume`` from the entity and every ancestor it cascades to, all or nothing.

        Use it as a context manager; the tokens are taken on entry::

            async with limiter.acquire("key-1", "gpt-4", {"rpm": 1, "tpm": 500}) as lease:
                answer = await call_llm()
                await lease.adjust(tpm=answer.total_tokens - 500)

        (and without ``async`` and ``await`` on a ``SyncRateLimiter``).

        ``limits`` override the stored limits of this entity. ``timeout`` is how many seconds to wait in the queue.
        ``on_unavailable`` is ``"block"``, ``"allow"`` or ``"local"``. If the body raises, what was taken and not
        settled is given back, unless ``on_error="keep"``. With a ``request_id`` a repeated request gets the same
        grant, and is charged once, for a day; another request under the same id is a ``ValidationError``.

        Entering raises ``RateLimitExceeded`` (``RequestExceedsBurst`` if it can never fit), ``AccessBlocked``,
        ``RateLimiterUnavailable`` and ``ValidationError``; in every case nothing is taken.
        """
        options = DEFAULT_OPTIONS
        if (
            limits is not None
            or timeout != 0
            or on_unavailable is not None
            or on_error is not REFUND
            or request_id is not None
        ):
            identity = None
            if request_id is not None:
                identity = LeaseIdentity(check_request_id(request_id), new_writer(), LIFETIME_MS)
            options = lease_options(limits, timeout, on_unavailable, on_error, identity)
        lease: SomeLease = new_object(self._lease_type)  # what a call of the type would do, in half the time
        lease._open = False
        lease._ledger = None
        lease._limiter = self
        lease._entity_id = entity_id
        lease._resource = resource
        lease._consume = consume
        lease._options = options
        lease._grant = None
        return lease

    def resume(self, token: str) -> SomeLease:
        """Go on with a lease that ``detach()`` ended the block of, in this process or in another one.

        Use it as a context manager: what is settled, adjusted or released in it is booked once, however many do so;
        ``lease.already_settled`` says that another one was first. At the end of the block the lease is over.

        Entering raises ``LeaseNotFoundError`` if there is no such lease in this namespace, or it has expired.
        """
        lease = self.acquire("", "", {})
        identity = LeaseIdentity(record_id_of(token), new_writer(), is_resumed=True)
        lease._options = LeaseOptions(None, 0, None, OnError.REFUND, identity)
        return lease

    def _available(
        self, entity_id: str, resource: str, *, limits: Iterable[Limit] | None = None
    ) -> Plan[dict[str, int]]:
        """What the entity's own bucket holds, per limit: whole tokens, rounded down, negative in debt.

        If the entity has a total over all resources, it is the lesser of the two; on ``*`` it is the total alone.
        Ancestors are not looked at: :meth:`time_until_available` does that. Nothing is taken.
        """
        check_entity_id(entity_id)
        check_bucket_resource(resource)
        override = None if limits is None else check_limits(limits)
        core = self._core
        now = yield from READ_CLOCK
        look = yield from core.call("look", core.look(entity_id, resource, {}, override, now))
        available: dict[str, int] = {}
        for status in look.statuses:
            if status.entity_id == entity_id:
                name, left = status.limit_name, status.available
                available[name] = min(available.get(name, left), left)
        return available

    def _time_until_available(
        self,
        entity_id: str,
        resource: str,
        needed: Mapping[str, int],
        *,
        limits: Iterable[Limit] | None = None,
    ) -> Plan[float]:
        """Seconds until an acquire of ``needed`` would be granted if no other caller takes, ancestors included.

        0 if it would be now, ``inf`` if an amount exceeds a burst. Nothing is taken.
        """
        check_entity_id(entity_id)
        check_resource(resource)
        wanted = check_consume(needed)
        override = None if limits is None else check_limits(limits)
        core = self._core
        now = yield from READ_CLOCK
        look = yield from core.call("look", core.look(entity_id, resource, wanted, override, now))
        return max((_seconds(status.retry_after_seconds) for status in look.statuses if status.refuses), default=0.0)

    def _check(
        self,
        entity_id: str | None,
        resource: str | None,
        consume: Mapping[str, int] | None,
        limits: Iterable[Limit] | None,
    ) -> Plan[Check | None]:
        if entity_id is None and resource is None and consume is None and limits is None:
            yield from self._check_store()
            return None
        checked = check_entity_id(entity_id), check_resource(resource), check_consume(consume)
        override = None if limits is None else check_limits(limits)
        core = self._core
        now = yield from READ_CLOCK
        look = yield from core.call("look", core.look(*checked, override, now))
        if (access := look.access) is not None:
            is_blocked = access.mode is AccessMode.BLOCK
            return Check(not is_blocked, None if is_blocked else 0.0, None, look.statuses, access)
        lacking = [status for status in look.statuses if status.refuses]
        binding = max(lacking, key=lambda status: _seconds(status.retry_after_seconds), default=None)
        wait = 0.0 if binding is None else binding.retry_after_seconds
        return Check(binding is None, wait, binding, look.statuses)

    def _check_store(self) -> Plan[None]:
        core = self._core
        yield from core.call("ping", core.store.ping())
        namespace = yield from core.call("get_namespace", core.store.get_namespace(core.namespace))
        if namespace.deleted_at is not None:
            raise NamespaceNotFoundError(core.namespace, deleted=True)

    def _get_status(self, entity_id: str, resource: str | None = None) -> Plan[EntityStatus]:
        """The entity's live buckets: levels, totals, time to full; and the access switches that hold for it.

        A bucket lives from its first acquire.
        """
        check_entity_id(entity_id)
        if resource is not None:
            check_bucket_resource(resource)
        core = self._core
        now = yield from READ_CLOCK
        return (yield from core.call("status", core.space.status(entity_id, resource, now)))

    def _reset(
        self,
        entity_id: str,
        resource: str | None = None,
        *,
        limits: Iterable[str] | None = None,
        key: str | None = None,
        principal: str | None = None,
    ) -> Plan[int]:
        """Fill the entity's buckets again, for one resource or all; audited. Returns how many there were.

        ``limits`` names those to fill, if not all. Under a ``key`` it is done once, however often it is repeated, and
        doing something else under the same key is a ``ValidationError``.
        """
        check_entity_id(entity_id)
        if resource is not None:
            check_bucket_resource(resource)
        names = None if limits is None else check_limit_names(limits)
        if key is not None:
            check_key(key)
        reset = Reset(entity_id, resource, names, key, check_principal(principal))
        core = self._core
        now = yield from READ_CLOCK
        count = yield from core.call("reset", core.space.reset(reset, now))
        core.wait_queue.wake_all()
        return count

    def _grant(
        self,
        entity_id: str,
        resource: str,
        amounts: Mapping[str, int],
        *,
        key: str,
        above: bool = False,
        principal: str | None = None,
    ) -> Plan[bool]:
        """Give the entity tokens on a resource, in its own bucket, up to the burst of each limit; audited.

        ``above``: lift calendar limits above their burst by so much, for the period that runs. It ends with that, also
        where a burst lets what is left roll over. A limit without periods cannot be lifted: a ``ValidationError``.

        It is done once per ``key``, for 90 days: whether it was done now. Giving something else under the same key is
        a ``ValidationError``. It is no usage: what was taken stays counted.
        """
        credit = Credit(
            check_entity_id(entity_id),
            check_resource(resource),
            check_credit(amounts),
            check_key(key),
            check_principal(principal),
            check_flag(above, "above"),
        )
        core = self._core
        now = yield from READ_CLOCK
        done = yield from core.call("credit", core.space.credit(credit, now))
        core.wait_queue.wake_all()
        return done

    def _get_lease(self, token: str) -> Plan[LeaseInfo]:
        """What is recorded of a lease. Raises ``LeaseNotFoundError`` if there is nothing, or it has expired."""
        record_id = record_id_of(token)
        core = self._core
        now = yield from READ_CLOCK
        record = yield from core.call("lease_record", core.space.lease_record(record_id, now))
        if record is None:
            raise LeaseNotFoundError(token)
        return lease_info(record)

    def _list_leases(
        self, entity_id: str | None = None, *, limit: int = 100, cursor: str | None = None
    ) -> Plan[Page[LeaseInfo]]:
        """The leases that have a record, by id; of one entity, or of all."""
        if entity_id is not None:
            check_entity_id(entity_id)
        check_page_size(limit)
        check_cursor(cursor)
        core = self._core
        now = yield from READ_CLOCK
        page = yield from core.call("lease_records", core.space.lease_records(entity_id, limit, cursor, now))
        return Page([lease_info(record) for record in page.items], page.next_cursor)

    def _lower(
        self, entity_id: str, resource: str, levels: Mapping[str, int], *, principal: str | None = None
    ) -> Plan[None]:
        """Let the entity's own bucket hold at most these levels: each becomes the lesser of itself and the number.

        For what a provider says is left. It adds nothing up: lowered to 5000 by fifty callers is lowered to 5000. A
        negative number is a debt. A level that is lower already stays, ancestors are not looked at, and usage counts
        nothing. It goes into the audit trail if a ``principal`` is named.
        """
        check_entity_id(entity_id)
        check_resource(resource)
        checked = check_levels(levels)
        check_principal(principal)
        core = self._core
        now = yield from READ_CLOCK
        yield from core.call("lower", core.space.lower(entity_id, resource, checked, principal, now))


def lease_info(record: LeaseRecord) -> LeaseInfo:
    """What is recorded of a lease, for callers."""
    state = cast(Literal["open", "closed", "void"], str(record.state))
    moments = at(record.granted_at), at(record.expires_at)
    whose = record.entity_id, record.resource
    return LeaseInfo(record.id, record.token, *whose, state, dict(record.granted), dict(record.written), *moments)


def check_limit_names(names: Iterable[str]) -> tuple[str, ...]:
    """Names of limits: at least one."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ValidationError("limits", names, "must be a list of names of limits")
    checked = tuple(check_limit_name(name, "limits") for name in names)
    if not checked:
        raise ValidationError("limits", names, "must name at least one limit; leave it out for all")
    return checked


def check_credit(amounts: Mapping[str, int]) -> dict[str, int]:
    """What is given: at least one limit, each more than nothing."""
    checked = check_consume(amounts)
    if not checked or not all(checked.values()):
        raise ValidationError("amounts", amounts, "must name at least one limit, and give more than 0 of each")
    return dict(checked)


def _seconds(wait: float | None) -> float:
    return math.inf if wait is None else wait
