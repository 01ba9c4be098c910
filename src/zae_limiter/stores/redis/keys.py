"""The keys, in one place. ``#`` separates their parts, and is in no name.

All keys of a namespace begin with its prefix, whose braces make them one hash slot:

===================================  ======  =========================================================================
``c``                                hash    ``state``, ``epoch``, ``policy``; ``q``, until when there are claims;
                                             limits ``l`` and versions ``v`` of the system, ``l/RESOURCE`` and
                                             ``v/RESOURCE`` of resources
``e#ENTITY``                         hash    ``meta``; ``p``, the parent if it cascades; ``l/RESOURCE``, ``v/RESOURCE``
``b#ENTITY#RESOURCE``                string  the bucket (``lua/arithmetic.lua`` says how)
``u#CHUNK#ENTITY#RESOURCE``          hash    usage: hour → counters at its beginning, for twenty days
``q#ENTITY#RESOURCE``                string  claims of callers that wait (``lua/claims.lua``)
``k#ENTITY#RESOURCE``                string  counters of a bucket that was dropped
``w#CLIENT.BLOCK``                   bitmap  marks of writes that are done
``y#CLIENT.BLOCK.BIT``               string  what a write that lent slots of calls in flight was answered, for a minute
``on#RESOURCE``                      zset    entities that have a bucket
``res`` ``ids`` ``rdef``             zset    resources in use, entities, resources that have limits
``kids#PARENT`` ``own#RESOURCE``     zset    entities by parent, and those with limits of their own
``a`` ``a#SUBJECT``                  zset    audit events, of all and by subject
``l#ID``                             string  the record of a lease, or of what was done under a key
``leases``                           zset    leases that have a record, by the time they expire
``p#PROCESS`` ``pulses``             string  what a process tells of itself; which ones do, by the time that expires
===================================  ======  =========================================================================
"""

from __future__ import annotations

from typing import Final

REGISTRY: Final = "zael"
"""The hash of namespaces, in a slot of its own."""

LAYOUT: Final = 1
"""How the data is laid out; a client refuses one that it does not know."""


def tag_of(namespace_id: str) -> str:
    """What decides the slot of a namespace."""
    return f"zael:{namespace_id}"


def prefix_of(tag: str) -> str:
    """What the keys of a namespace begin with."""
    return f"{{{tag}}}"


def namespace_key(prefix: str) -> str:
    """State and wide limits."""
    return prefix + "c"


def entity_key(prefix: str, entity_id: str) -> str:
    """An entity and its limits."""
    return f"{prefix}e#{entity_id}"


def bucket_key(prefix: str, entity_id: str, resource: str) -> str:
    """A bucket."""
    return f"{prefix}b#{entity_id}#{resource}"


def lease_key(prefix: str, record_id: str) -> str:
    """The record of a lease."""
    return f"{prefix}l#{record_id}"


def marks_key(prefix: str, client: str, block: int) -> str:
    """A block of marks of one client."""
    return f"{prefix}w#{client}.{block}"


def audit_key(prefix: str, subject: str | None) -> str:
    """Audit events, of all or of one subject."""
    return prefix + ("a" if subject is None else f"a#{subject}")
