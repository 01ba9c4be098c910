"""Who may do what to a table: three IAM policies, each for all of it and for one namespace.

============ ===================================================================================================
``acquire``  what a program needs that limits its own calls: it reads limits, writes buckets and its pulse
``read``     what a dashboard needs: everything is read, nothing is written
``full``     what an operator needs: all that the library does, except to make, migrate, follow or remove a table
============ ===================================================================================================

A namespace is told by ``dynamodb:LeadingKeys``: every partition key, of the table and of its indexes, begins with the
namespace's id and a slash. A policy for one namespace lets the registry be read by key, because a client has to learn
there which id its namespace has, but neither listed nor written.

The template makes both kinds. Which namespace its policies of the second kind are about is a tag of the principal that
uses them, :data:`NAMESPACE_TAG`, whose value is the namespace's id: one policy then serves any number of them. Here
the same documents can be had with an id written into them.

The tests perform every public operation against a real table, note what IAM would be asked, and compare: nothing may
be missing from a policy, and nothing may be in it that was not asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

from zae_limiter.exceptions import ValidationError
from zae_limiter.stores.dynamodb.schema import REGISTRY, pk_system

Level: TypeAlias = Literal["acquire", "read", "full"]
LEVELS: Final[tuple[Level, ...]] = ("acquire", "read", "full")

NAMESPACE_TAG: Final = "zae-limiter-namespace"
"""The tag of a role or user that says which namespace it is for: by id, not by name."""

TAGGED: Final = f"${{aws:PrincipalTag/{NAMESPACE_TAG}}}"
"""Stands for the namespace id in a policy that is about whatever the tag says."""

Statement: TypeAlias = dict[str, Any]
Document: TypeAlias = dict[str, Any]

READ_ITEMS: Final = ("dynamodb:BatchGetItem", "dynamodb:GetItem")
WRITE_BUCKETS: Final = ("dynamodb:PutItem", "dynamodb:UpdateItem")
WRITE_NAMESPACE: Final = (
    "dynamodb:ConditionCheckItem",
    "dynamodb:DeleteItem",
    "dynamodb:PutItem",
    "dynamodb:UpdateItem",
)
WRITE_ALL: Final = (*WRITE_NAMESPACE, "dynamodb:BatchWriteItem")

READ_WITH_KEY: Final = ("kms:Decrypt", "kms:DescribeKey")
WRITE_WITH_KEY: Final = (*READ_WITH_KEY, "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*")
"""What DynamoDB has to be allowed on behalf of its user, if a table is encrypted with a key of one's own."""


def policy_document(
    level: Level, table_arn: str, *, namespace_id: str | None = None, kms_key_arn: str | None = None
) -> Document:
    """A policy for all of a table, for the namespace of that id, or for the one that a tag names (:data:`TAGGED`)."""
    if namespace_id is not None and namespace_id != TAGGED:
        check_namespace_id(namespace_id)
    statements = [*_STATEMENTS[level](table_arn, namespace_id), _describe(table_arn)]
    if kms_key_arn is not None:
        actions = READ_WITH_KEY if level == "read" else WRITE_WITH_KEY
        statements.append(_use_key(actions, kms_key_arn))
    return {"Version": "2012-10-17", "Statement": statements}


def check_namespace_id(value: str) -> str:
    """An id that may stand in a policy: one of a namespace, not the registry's, and without a wildcard."""
    if value == REGISTRY or not value.isascii() or not value.replace("-", "").isalnum():
        raise ValidationError(
            "namespace_id", value, "must be the id of a namespace, as namespace show --json tells it"
        )
    return value


def _acquire(table_arn: str, ns: str | None) -> list[Statement]:
    scope = "*" if ns is None else ns
    kinds = ("BUCKET#*", "ENTITY#*", "LEASE#*", "RESOURCE#*", "SYSTEM#")
    registry = [] if ns is None else [pk_system(REGISTRY)]
    written = [f"{scope}/BUCKET#*", f"{scope}/LEASE#*", f"{scope}/PULSE#"]
    return [
        _allow("ReadLimits", READ_ITEMS, [table_arn], [*(f"{scope}/{kind}" for kind in kinds), *registry]),
        _allow("WriteBuckets", WRITE_BUCKETS, [table_arn], written, tagged=ns == TAGGED),
    ]


def _read(table_arn: str, ns: str | None) -> list[Statement]:
    places = [table_arn, f"{table_arn}/index/*"]
    if ns is None:
        return [
            _allow("ReadItems", READ_ITEMS, [table_arn]),
            _allow("ReadLists", ["dynamodb:Query"], places),
        ]
    return [
        _allow("ReadItems", READ_ITEMS, [table_arn], [f"{ns}/*", pk_system(REGISTRY)]),
        _allow("ReadLists", ["dynamodb:Query"], places, [f"{ns}/*"]),
    ]


def _full(table_arn: str, ns: str | None) -> list[Statement]:
    if ns is None:
        return [*_read(table_arn, ns), _allow("WriteItems", WRITE_ALL, [table_arn])]
    write = _allow("WriteItems", WRITE_NAMESPACE, [table_arn], [f"{ns}/*"], tagged=ns == TAGGED)
    return [*_read(table_arn, ns), write]


_STATEMENTS: Final = {"acquire": _acquire, "read": _read, "full": _full}


def _allow(
    sid: str,
    actions: Sequence[str],
    resources: Sequence[str],
    keys: Sequence[str] | None = None,
    *,
    tagged: bool = False,
) -> Statement:
    """A statement; ``keys`` are all that a request may name. A ``tagged`` one excludes principals that have the
    registry's id in their tag."""
    statement: Statement = {
        "Sid": sid,
        "Effect": "Allow",
        "Action": sorted(actions),
        "Resource": list(resources),
    }
    if keys is not None:
        statement["Condition"] = {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": list(keys)}}
    if tagged:
        statement["Condition"]["StringNotEquals"] = {f"aws:PrincipalTag/{NAMESPACE_TAG}": REGISTRY}
    return statement


def _describe(table_arn: str) -> Statement:
    """How a client finds out whether the table answers again, after it did not for a while."""
    return _allow("FindTheTable", ["dynamodb:DescribeTable"], [table_arn])


def _use_key(actions: Sequence[str], kms_key_arn: str) -> Statement:
    statement = _allow("UseTheKey", actions, [kms_key_arn])
    statement["Condition"] = {"StringLike": {"kms:ViaService": "dynamodb.*"}}
    return statement
