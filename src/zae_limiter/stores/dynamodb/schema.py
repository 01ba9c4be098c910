"""The one table: the keys of its items, and the types of their attributes.

Every partition key begins with the namespace's id and a slash; ``_`` is the registry. ``#`` separates the parts of a
key, and no valid name contains it.

Attributes are DynamoDB's typed JSON, of the types we store: strings, whole numbers, booleans, nothing, lists, maps.
What is read may have been written by any client with access to the table. Numbers are bounded here, where they are
read: DynamoDB's may have 126 digits, and a loop or a sum over one of those would cost its reader dearly.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple
from zlib import crc32

from zae_limiter.bucket import MOST_STORED

REGISTRY = "_"
"""The namespace id of the registry itself."""

LONGEST_SORT_KEY = 1_024
"""Bytes; DynamoDB's own rule."""

SPREAD = 16
"""Over how many keys the index of a whole namespace is spread: one key would be one hot index partition."""

MOST_SHARDS = 64
"""Into how many shards a bucket is split at most."""

GSI1, GSI2, GSI3, GSI4 = "GSI1", "GSI2", "GSI3", "GSI4"
INDEXES = (GSI1, GSI2, GSI3, GSI4)

SK_META = "#META"
SK_STATE = "#STATE"
SK_CONFIG = "#CONFIG"
SK_VERSION = "#VERSION"
SK_LEASE = "#LEASE"
SK_ACCESS = "#ACCESS"


class Key(NamedTuple):
    """Where an item is."""

    pk: str
    sk: str


def ns_of(key: Key) -> str:
    """The id of the namespace a key is in."""
    return key.pk.partition("/")[0]


def pk_system(ns: str) -> str:
    """The system's config, or (in the registry) the version and the namespaces."""
    return f"{ns}/SYSTEM#"


def pk_resource(ns: str, resource: str) -> str:
    """A resource's config."""
    return f"{ns}/RESOURCE#{resource}"


def pk_entity(ns: str, entity_id: str) -> str:
    """An entity: its description, its configs, its usage."""
    return f"{ns}/ENTITY#{entity_id}"


def pk_audit(ns: str, subject: str) -> str:
    """The audit trail of an entity, of ``$SYSTEM``, of ``$NAMESPACE`` or of ``$RESOURCE:name``."""
    return f"{ns}/AUDIT#{subject}"


def pk_pulses(ns: str) -> str:
    """What the processes of a namespace tell of themselves."""
    return f"{ns}/PULSE#"


def sk_config(resource: str | None = None) -> str:
    """A config: an entity's for one resource (or ``_default_``), or the only one of its partition."""
    return SK_CONFIG if resource is None else f"{SK_CONFIG}#{resource}"


def sk_audit(event_id: str) -> str:
    """One audit event; they sort by time."""
    return f"#AUDIT#{event_id}"


def sk_usage(resource: str, window: str, start: str, shard: int, inc: str) -> str:
    """One usage window of one incarnation of one shard."""
    return f"#USAGE#{resource}#{window}#{start}#{shard}#{inc}"


def sk_namespace(name: str) -> str:
    """A namespace by name, in the registry."""
    return f"#NAMESPACE#{name}"


def sk_namespace_id(ns: str) -> str:
    """A namespace by id, in the registry."""
    return f"#NSID#{ns}"


def bucket_key(ns: str, entity_id: str, resource: str, shard: int = 0) -> Key:
    """Where a bucket is."""
    return Key(f"{ns}/BUCKET#{entity_id}#{resource}#{shard}", SK_STATE)


def shard_key(key: Key, shard: int) -> Key:
    """Where another shard of the same bucket is."""
    return Key(f"{key.pk.rpartition('#')[0]}#{shard}", key.sk)


def shard_of(key: Key) -> int:
    """Which shard of its bucket a key is of."""
    return int(key.pk.rpartition("#")[2])


def lease_key(ns: str, record_id: str) -> Key:
    """Where the record of a lease is."""
    return Key(f"{ns}/LEASE#{record_id}", SK_LEASE)


def pulse_key(ns: str, expires_at: int, process: str) -> Key:
    """Where a process tells of itself: the same place for a minute, and later ones behind earlier ones."""
    return Key(pk_pulses(ns), f"#PULSE#{expires_at // 60_000:012d}#{process}")


def meta_key(ns: str, entity_id: str) -> Key:
    """Where an entity is described."""
    return Key(pk_entity(ns, entity_id), SK_META)


def config_key(ns: str, entity_id: str | None, resource: str | None) -> Key:
    """Where one level's config is (see ``Scope``)."""
    if entity_id is not None:
        return Key(pk_entity(ns, entity_id), sk_config(resource))
    return Key(pk_system(ns) if resource is None else pk_resource(ns, resource), SK_CONFIG)


def access_key(ns: str) -> Key:
    """Where the access switches of the system and of resources are, all in one item."""
    return Key(pk_system(ns), SK_ACCESS)


def namespace_key(name: str) -> Key:
    """Where a namespace is registered by name."""
    return Key(pk_system(REGISTRY), sk_namespace(name))


def namespace_id_key(ns: str) -> Key:
    """Where a namespace is registered by id."""
    return Key(pk_system(REGISTRY), sk_namespace_id(ns))


def version_key() -> Key:
    """Where the layout's version is."""
    return Key(pk_system(REGISTRY), SK_VERSION)


# Indexes


def gsi1(ns: str, parent_id: str, entity_id: str) -> dict[str, str]:
    """Children by parent."""
    return {"GSI1PK": f"{ns}/PARENT#{parent_id}", "GSI1SK": f"CHILD#{entity_id}"}


def gsi1_access(ns: str, entity_id: str, resource: str) -> dict[str, str]:
    """Access switches of entities."""
    return {"GSI1PK": f"{ns}/ACCESS#", "GSI1SK": f"SWITCH#{entity_id}#{resource}"}


def gsi2_bucket(ns: str, entity_id: str, resource: str, shard: int) -> dict[str, str]:
    """Buckets by resource."""
    return {"GSI2PK": f"{ns}/RESOURCE#{resource}", "GSI2SK": f"BUCKET#{entity_id}#{shard}"}


def gsi2_usage(ns: str, resource: str, window: str, start: str, entity_id: str, shard: int) -> dict[str, str]:
    """Usage by resource."""
    return {"GSI2PK": f"{ns}/RESOURCE#{resource}", "GSI2SK": f"USAGE#{window}#{start}#{entity_id}#{shard}"}


def gsi3_bucket(ns: str, entity_id: str, resource: str, shard: int) -> dict[str, str]:
    """Buckets by entity."""
    return {"GSI3PK": f"{ns}/ENTITY#{entity_id}", "GSI3SK": f"BUCKET#{resource}#{shard}"}


def gsi3_config(ns: str, resource: str, entity_id: str) -> dict[str, str]:
    """Entities with limits of their own, by resource."""
    return {"GSI3PK": f"{ns}/ENTITY_CONFIG#{resource}", "GSI3SK": entity_id}


def config_filed_as(entity_id: str, resource: str) -> str:
    """Under what an entity's config is in the index of the whole namespace: if its names are too long for a sort key,
    by their digest."""
    whole = f"CONFIG#{entity_id}#{resource}"
    if len(whole.encode()) <= LONGEST_SORT_KEY:
        return whole
    return f"CONFIG#{sha256(whole.encode()).hexdigest()}"


def gsi4_pk(ns: str, slot: int) -> str:
    """One of the keys over which a namespace's items are spread."""
    return f"{ns}/{slot}"


def gsi4(ns: str, pk: str, what: str) -> dict[str, str]:
    """Everything of a namespace. ``what`` begins with the kind of item: ``BUCKET``, ``ENTITY#id``…"""
    return {"GSI4PK": gsi4_pk(ns, crc32(pk.encode()) % SPREAD), "GSI4SK": what}


_SHARDS = frozenset(map(str, range(MOST_SHARDS)))


def lease_filed_as(entity_id: str, record_id: str) -> str:
    """How the id of a lease stands in the index of a namespace, where a key has at most 1,024 bytes."""
    room = 1_000 - len(entity_id.encode())
    return record_id if len(record_id.encode()) <= room else sha256(record_id.encode()).hexdigest()


def is_of(ns: str, key: Key) -> bool:
    """Whether an item is in a namespace."""
    return key.pk.startswith(f"{ns}/")


def is_filed_rightly(index: str, filed: Key, key: Key) -> bool:
    """Whether the item at ``key`` is what it is ``filed`` as in an index: of that namespace, and of that kind.

    A client that may write nothing but buckets of its own namespace may still put any index key into them.
    """
    ns, _, place = filed.pk.partition("/")
    owner, _, name = place.partition("#")
    kind, *parts = filed.sk.split("#")
    if index == GSI1 and owner == "ACCESS":
        return kind == "SWITCH" and len(parts) == 2 and key == config_key(ns, *parts)
    if index == GSI1:
        return kind == "CHILD" and len(parts) == 1 and key == meta_key(ns, parts[0])
    if index == GSI2 and kind == "BUCKET":
        return len(parts) == 2 and _is_bucket(key, ns, parts[0], name, parts[1])
    if index == GSI2:
        return kind == "USAGE" and len(parts) == 4 and _is_usage(key, ns, parts[2], name, f"{parts[0]}#{parts[1]}")
    if index == GSI3 and owner == "ENTITY_CONFIG":
        return not parts and key == config_key(ns, kind, name)
    if index == GSI3:
        return kind == "BUCKET" and len(parts) == 2 and _is_bucket(key, ns, name, *parts)
    return _is_in_namespace(ns, kind, parts, key)


def _is_bucket(key: Key, ns: str, entity_id: str, resource: str, shard: str) -> bool:
    return key == (f"{ns}/BUCKET#{entity_id}#{resource}#{shard}", SK_STATE) and shard in _SHARDS


def _is_usage(key: Key, ns: str, entity_id: str, resource: str, window: str) -> bool:
    return key.pk == pk_entity(ns, entity_id) and key.sk.startswith(f"#USAGE#{resource}#{window}#")


def _is_in_namespace(ns: str, kind: str, parts: list[str], key: Key) -> bool:
    """The same, of the index of everything in a namespace."""
    what, *names = key.pk.removeprefix(f"{ns}/").split("#")
    if not is_of(ns, key):
        return False
    if kind == "BUCKET":
        return not parts and what == kind and len(names) == 3 and _is_bucket(key, ns, *names)
    if kind == "ENTITY":
        return len(parts) == 1 and key == meta_key(ns, parts[0])
    if kind == "AUDIT":
        return len(parts) == 1 and what == kind and key.sk == sk_audit(parts[0])
    if kind == "LEASE":
        return _is_lease(ns, parts, key)
    if kind == "CONFIG":
        return _is_config(ns, parts, names, key)
    if kind == "RESOURCE":
        return len(parts) == 1 and key == config_key(ns, None, parts[0])
    if kind in ("SYSTEM", "ACCESS"):
        return not parts and key == (config_key(ns, None, None) if kind == "SYSTEM" else access_key(ns))
    if kind == "USAGE":
        return not parts and what == "ENTITY" and key.sk.startswith("#USAGE#")
    return kind == "TOMB" and what in ("ENTITY", "RESOURCE", "SYSTEM")


def _is_config(ns: str, parts: list[str], names: list[str], key: Key) -> bool:
    if len(parts) == 2:
        return key == config_key(ns, *parts)
    resource = key.sk.removeprefix(sk_config(""))
    return len(names) == 1 and config_filed_as(names[0], resource) == f"CONFIG#{parts[0]}"


def _is_lease(ns: str, parts: list[str], key: Key) -> bool:
    record_id = key.pk.partition("/LEASE#")[2]
    return len(parts) == 2 and key == lease_key(ns, record_id) and parts[1] == lease_filed_as(parts[0], record_id)


# Attribute values


def number_in(attribute: Mapping[str, Any], least: int = -MOST_STORED, most: int = MOST_STORED) -> int:
    """A whole number as Python has it. Raises ``KeyError`` or ``ValueError`` if it is none, or out of bounds."""
    number = int(attribute["N"])
    if not least <= number <= most:
        raise ValueError(f"a number of {len(str(number))} digits is out of bounds")
    return number


def encode(value: Any) -> dict[str, Any]:
    """A value as DynamoDB writes it."""
    kind = value.__class__
    if kind is int:
        return {"N": str(value)}
    if kind is str:
        return {"S": value}
    if kind is bool:
        return {"BOOL": value}
    if value is None:
        return {"NULL": True}
    if isinstance(value, str):
        return {"S": str(value)}
    if isinstance(value, Mapping):
        return {"M": {key: encode(part) for key, part in value.items()}}
    if isinstance(value, (list, tuple)):
        return {"L": [encode(part) for part in value]}
    raise TypeError(f"{kind.__name__} is not stored")


def decode(value: Mapping[str, Any]) -> Any:
    """A value as Python has it."""
    ((kind, content),) = value.items()
    if kind == "N":
        return number_in(value)
    if kind in ("S", "BOOL"):
        return content
    if kind == "NULL":
        return None
    if kind == "M":
        return {key: decode(part) for key, part in content.items()}
    if kind == "L":
        return [decode(part) for part in content]
    raise ValueError(f"an attribute of type {kind} is none of ours")


def encode_item(attributes: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """An item as DynamoDB writes it. ``None`` means that the attribute is not there."""
    return {name: encode(value) for name, value in attributes.items() if value is not None}


def decode_item(item: Mapping[str, Any]) -> dict[str, Any]:
    """An item as Python has it."""
    return {name: decode(value) for name, value in item.items()}
