"""How things look in a row.

A file may have been changed by any program that can write to it. Whatever a row says that cannot be, is told by
``VersionError`` where the row is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache, wraps
from typing import Any, TypeVar

from zae_limiter.bucket import (
    MOST_STORED,
    Balance,
    Bucket,
    HeldBalance,
    SteppedBalance,
    balance_of,
    key_of,
)
from zae_limiter.exceptions import ValidationError, VersionError
from zae_limiter.models.access import Access
from zae_limiter.models.choices import OnUnavailable
from zae_limiter.models.entity import Entity
from zae_limiter.models.limit import Limit
from zae_limiter.models.moments import LAST_MOMENT_MS, at, milliseconds_at
from zae_limiter.models.reports import AuditEvent
from zae_limiter.naming import check_limit_name
from zae_limiter.stores.embedded.tables import UsageRow
from zae_limiter.stores.lease_records import LeaseRecord, record_from_text
from zae_limiter.stores.limit_fields import fields_of, limit_from
from zae_limiter.stores.protocol import Config, Scope, access_from_text
from zae_limiter.stores.windows import Counters

Stored = TypeVar("Stored")
Decoded = TypeVar("Decoded")

_MARKED = re.compile("[@^!]").search
LONGEST_NUMBER = len(str(-MOST_STORED)) - 1
LAST_INTEGER = 2**63 - 1


def decoder(what: str) -> Callable[[Callable[[Stored], Decoded]], Callable[[Stored], Decoded]]:
    """Makes a function that reads what is stored raise ``VersionError``, and nothing else, for what is no ``what``."""

    def made(decode: Callable[[Stored], Decoded]) -> Callable[[Stored], Decoded]:
        @wraps(decode)
        def decode_or_tell(stored: Stored) -> Decoded:
            try:
                return decode(stored)
            except VersionError:
                raise
            except ValidationError as error:
                if error.field == "tz":  # the file is well: this host lacks a time zone
                    raise VersionError(f"{what} cannot be used here: {error}") from error
                raise _unreadable(what, error) from error
            except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError) as error:
                raise _unreadable(what, error) from error

        return decode_or_tell

    return made


def _unreadable(what: str, error: Exception) -> VersionError:
    said = f"{type(error).__name__}: {error}"[:200]
    hint = "another program has changed the file: restore it from a backup, or move it away to start anew"
    return VersionError(f"{what} cannot be read ({said}); {hint}")


def whole(value: object, least: int = -LAST_INTEGER, most: int = LAST_INTEGER) -> int:
    """A whole number within bounds."""
    if type(value) is not int or not least <= value <= most:
        raise ValueError("not a number, or out of bounds")
    return value


def text(value: object) -> str:
    """A text."""
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def mapping(value: object) -> dict[str, Any]:
    """What has names."""
    if not isinstance(value, dict):
        raise TypeError("not a mapping")
    return value


def to_json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


@lru_cache(4096)
def limits_to_text(limits: tuple[Limit, ...]) -> str:
    return to_json([fields_of(limit) for limit in limits])


@lru_cache(4096)
@decoder("a set of limits")
def limits_from_text(text: str) -> tuple[Limit, ...]:
    limits = tuple(limit_from(fields) for fields in json.loads(text))
    if len({limit.name for limit in limits}) < len(limits):
        raise ValueError("a limit is there twice")
    return limits


def entity_to_row(entity: Entity) -> tuple[Any, ...]:
    created = None if entity.created_at is None else milliseconds_at(entity.created_at)
    metadata = to_json(dict(entity.metadata))
    return (entity.id, entity.name, entity.parent_id, entity.cascade, metadata, entity.version, created)


@decoder("an entity")
def entity_from_row(row: Sequence[Any]) -> Entity:
    id_, name, parent_id, cascade, metadata, version, created = row
    created_at = None if created is None else moment(created)
    name, parent_id = (None if value is None else text(value) for value in (name, parent_id))
    return Entity(text(id_), name, parent_id, bool(cascade), mapping(json.loads(metadata)), whole(version), created_at)


def moment(stored: object) -> datetime:
    """A moment of a row."""
    return at(whole(stored, 0, LAST_MOMENT_MS))


@decoder("a level's limits")
def config_from_row(row: Sequence[Any]) -> Config:
    scope, limits, on_unavailable, version, access = row
    policy = None if on_unavailable is None else OnUnavailable(on_unavailable)
    switch = None if access is None else access_from_row((scope, access))
    return Config(limits_from_text(text(limits)), policy, whole(version, 0), switch)


@decoder("an access switch")
def access_from_row(row: tuple[Scope, str]) -> Access:
    scope, said = row
    return access_from_text(scope, text(said))


@decoder("the epoch of a namespace")
def next_epoch(stored: Any) -> int:
    return whole(stored, 0, LAST_INTEGER - 1) + 1


def terms_to_text(bucket: Bucket) -> str:
    """The limits in force, then those that rest."""
    if bucket.stored_terms is not None:
        return bucket.stored_terms
    retired = tuple(balance.limit for balance in bucket.retired.values())
    if not retired:
        return limits_to_text(bucket.limits)
    return f"{limits_to_text(bucket.limits)}\n{limits_to_text(retired)}"


def numbers_to_text(numbers: Iterable[tuple[int, int]], latest: int, told_apart: str = "") -> str:
    """Balances and counters, then the latest moment the row was written for (earlier versions had none), then what
    :func:`told_apart_to_text` has."""
    return f"{' '.join([f'{tk} {tc}' for tk, tc in numbers])} {latest}{told_apart}"


def told_apart_to_text(cascaded_events: int, cascaded: Mapping[str, int], denials: Mapping[str, int]) -> str:
    """What cascaded, and the denials; nothing where there were none of either: ``|7 rpm=7000|tpm=2``."""
    if not (cascaded_events or cascaded or denials):
        return ""
    return f"|{cascaded_events}{_amounts_to_text(cascaded)}|{_amounts_to_text(denials)}"


def _amounts_to_text(amounts: Mapping[str, int]) -> str:
    return "".join([f" {name}={amount}" for name, amount in amounts.items()])


def _amounts_from_words(words: Iterable[str]) -> dict[str, int]:
    found = {}
    for word in words:
        name, _, amount = word.partition("=")
        if len(amount) > LONGEST_NUMBER:
            raise ValueError("a counter is out of bounds")
        found[check_limit_name(name)] = int(amount)
    return found


def tokens_to_text(bucket: Bucket) -> str:
    """The balance and counter of every limit, in the order of the terms.

    Behind them, of a calendar limit ``@`` and its period, and ``+`` and what is extra in it, if anything is; of calls
    in flight ``^``, the latest due time that was returned, and ``due:count`` for each; of one that only watches ``!``
    and what it would have refused.
    """
    balances: Iterable[Balance] = bucket.balances
    if bucket.retired:
        balances = (*bucket.balances, *bucket.retired.values())
    told_apart = told_apart_to_text(bucket.cascaded_events, bucket.cascaded, bucket.denials)
    if bucket.is_plain and not bucket.retired:
        return numbers_to_text([(balance.tk, balance.tc) for balance in balances], bucket.latest, told_apart)
    return f"{' '.join(map(_words_of, balances))} {bucket.latest}{told_apart}"


def _words_of(balance: Balance) -> str:
    words = [str(balance.tk), str(balance.tc)]
    if isinstance(balance, SteppedBalance):
        words.append(f"@{balance.pn}")
        if balance.extra:
            words.append(f"+{balance.extra}")
    if isinstance(balance, HeldBalance):
        words.append(f"^{balance.hb}")
        words += [f"{due}:{count}" for due, count in sorted(balance.counts.items())]
    if balance.sn:
        words.append(f"!{balance.sn}")
    return " ".join(words)


@decoder("a bucket")
def bucket_from_row(row: Sequence[Any]) -> Bucket:
    entity_id, resource, rf, events, hour, terms, tokens, carried, born = row
    bucket = Bucket(entity_id, resource, whole(rf, 0, LAST_MOMENT_MS))
    bucket.born = whole(born, 0)
    bucket.events = whole(events)
    bucket.hour = whole(hour, 0, LAST_MOMENT_MS)
    in_force, _, retired = terms.partition("\n")
    tokens, *told_apart = tokens.split("|")
    if told_apart:
        cascaded, denials = told_apart
        events_cascaded, *cascaded = cascaded.split()
        bucket.cascaded_events = whole(int(events_cascaded))
        bucket.cascaded = _amounts_from_words(cascaded)
        bucket.denials = _amounts_from_words(denials.split())
    words = tokens.split()
    if max(map(len, words), default=0) > LONGEST_NUMBER:
        raise ValueError("a balance or a counter is out of bounds")
    bucket.limits = limits_from_text(in_force)
    bucket.stored_terms = terms
    if carried != "{}":
        bucket.carried = amounts(json.loads(carried))
    if _MARKED(tokens) or not bucket.is_plain:
        _read_balances(bucket, words, limits_from_text(retired) if retired else ())
        return bucket
    numbers = [int(word) for word in words]
    bucket.latest = whole(numbers[-1], 0, LAST_MOMENT_MS) if len(numbers) % 2 else bucket.rf
    bucket.balances = tuple(
        [
            Balance(limit, rf, tk=numbers[2 * place], tc=numbers[2 * place + 1])
            for place, limit in enumerate(bucket.limits)
        ]
    )
    if retired:
        offset = 2 * len(bucket.limits)
        bucket.retired = {
            limit.name: Balance(limit, rf, tk=numbers[offset + 2 * place], tc=numbers[offset + 2 * place + 1])
            for place, limit in enumerate(limits_from_text(retired))
        }
    return bucket


def _read_balances(bucket: Bucket, words: list[str], retired: tuple[Limit, ...]) -> None:
    """The balances of every kind, and the latest moment, from the words that :func:`tokens_to_text` wrote."""
    words.reverse()
    bucket.balances = tuple([_balance_from(limit, bucket.rf, words) for limit in bucket.limits])
    bucket.retired = {key_of(limit): _balance_from(limit, bucket.rf, words) for limit in retired}
    [latest] = words
    bucket.latest = whole(int(latest), 0, LAST_MOMENT_MS)


def _balance_from(limit: Limit, rf: int, words: list[str]) -> Balance:
    """The balance that the last of these words are about; they are taken away."""
    balance = balance_of(limit, rf, tk=int(words.pop()), tc=int(words.pop()))
    if isinstance(balance, SteppedBalance):
        balance.at_rf = balance.step * int(_marked(words.pop(), "@"))
        if words[-1][0] == "+":
            tk = balance.tk
            balance.lift(whole(int(words.pop()[1:]), 1, MOST_STORED))
            balance.tk = tk
    if isinstance(balance, HeldBalance):
        balance.hb = whole(int(_marked(words.pop(), "^")), 0, LAST_MOMENT_MS)
        while words and ":" in words[-1]:
            due, _, count = words.pop().partition(":")
            balance.counts[whole(int(due), 0, LAST_MOMENT_MS)] = whole(int(count), 1)
        if balance.tk + sum(balance.counts.values()) != balance.bx:
            raise ValueError("slots of a limit are missing")
    if words and words[-1][0] == "!":
        balance.sn = whole(int(words.pop()[1:]), 0)
    return balance


def _marked(word: str, mark: str) -> str:
    if word[0] != mark:
        raise ValueError(f"a {mark} is missing")
    return word[1:]


def amounts(stored: object) -> dict[str, int]:
    """Millitokens by limit."""
    return {name: whole(milli, -MOST_STORED, MOST_STORED) for name, milli in mapping(stored).items()}


def counters_to_text(counters: Counters) -> str:
    fields = [counters.events, dict(counters.milli)]
    if counters.cascaded_events or counters.cascaded or counters.denials:
        fields += (counters.cascaded_events, dict(counters.cascaded), dict(counters.denials))
    return to_json(fields)


def counters_from_text(text: str) -> Counters:
    events, milli, *told_apart = json.loads(text)
    if not told_apart:
        return Counters(whole(events), amounts(milli))
    cascaded_events, cascaded, denials = told_apart
    return Counters(whole(events), amounts(milli), whole(cascaded_events), amounts(cascaded), amounts(denials))


@decoder("an hour of usage")
def usage_from_row(row: Sequence[Any]) -> UsageRow:
    entity_id, resource, hour, start, end = row
    began, ended = counters_from_text(start), None if end is None else counters_from_text(end)
    return UsageRow(text(entity_id), text(resource), whole(hour, 0, LAST_MOMENT_MS), began, ended)


@decoder("the record of a lease")
def lease_from_row(row: Sequence[Any]) -> LeaseRecord:
    record_id, state, version, expires, body = row
    return record_from_text(text(record_id), text(state), whole(version, 0), whole(expires, 0), text(body))


@decoder("an audit event")
def audit_from_row(row: Sequence[Any]) -> AuditEvent:
    event_id, at_ms, action, subject, resource, principal, details = row
    resource, principal = (None if value is None else text(value) for value in (resource, principal))
    told = mapping(json.loads(details))
    return AuditEvent(text(event_id), moment(at_ms), text(action), text(subject), resource, principal, told)
