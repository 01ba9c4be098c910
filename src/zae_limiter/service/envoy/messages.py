"""The messages of Envoy's rate limit service, on the wire and as plain values.

``rls.proto`` says what they are. The classes are made here from the same table, in a pool of their own, instead of
being generated: generated code works with one major version of protobuf only, and two files that describe Envoy's
messages cannot be in one pool, so a program that has Envoy's own would fail to import ours.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from zae_limiter.service.envoy.descriptors import Descriptor, Override
from zae_limiter.service.envoy.responses import Response

PACKAGE = "envoy.service.ratelimit.v3"
SERVICE = f"{PACKAGE}.RateLimitService"
METHOD = "ShouldRateLimit"

MESSAGES = {
    "RateLimitRequest": ("string domain", "RateLimitDescriptor* descriptors", "uint32 hits_addend"),
    "RateLimitDescriptor": (
        "Entry* entries",
        "RateLimitOverride limit",
        "UInt64Value hits_addend",
        "bool is_negative_hits",
    ),
    "Entry": ("string key", "string value"),
    "RateLimitOverride": ("uint32 requests_per_unit", "int32 unit"),
    "UInt64Value": ("uint64 value",),
    "RateLimitResponse": (
        "int32 overall_code",
        "DescriptorStatus* statuses",
        "HeaderValue* response_headers_to_add",
        "HeaderValue* request_headers_to_add",
        "bytes raw_body",
    ),
    "DescriptorStatus": (
        "int32 code",
        "RateLimit current_limit",
        "uint32 limit_remaining",
        "Duration duration_until_reset",
    ),
    "RateLimit": ("uint32 requests_per_unit", "int32 unit", "string name"),
    "Duration": ("int64 seconds", "int32 nanos"),
    "HeaderValue": ("string key", "string value"),
}
"""The fields of each message, in the order of their numbers, which begin at 1. A star: any number of them."""

SCALARS = {
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "string": FieldDescriptorProto.TYPE_STRING,
    "uint32": FieldDescriptorProto.TYPE_UINT32,
    "uint64": FieldDescriptorProto.TYPE_UINT64,
}


def file_descriptor() -> FileDescriptorProto:
    """The table as protobuf has it."""
    file = FileDescriptorProto(name="zae_limiter/rls.proto", package=PACKAGE, syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, field in enumerate(fields, start=1):
            kind, _, field_name = field.partition(" ")
            added = message.field.add(name=field_name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
            if kind.endswith("*"):
                added.label = FieldDescriptorProto.LABEL_REPEATED
            scalar = SCALARS.get(kind)
            added.type = FieldDescriptorProto.TYPE_MESSAGE if scalar is None else scalar
            if scalar is None:
                added.type_name = f".{PACKAGE}.{kind.removesuffix('*')}"
    return file


def _classes() -> dict[str, Any]:
    pool = DescriptorPool()
    pool.AddSerializedFile(file_descriptor().SerializeToString())
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in MESSAGES}


CLASSES = _classes()
RateLimitRequest = CLASSES["RateLimitRequest"]
RateLimitResponse = CLASSES["RateLimitResponse"]
_DescriptorStatus = CLASSES["DescriptorStatus"]
_RateLimit = CLASSES["RateLimit"]
_Duration = CLASSES["Duration"]
_HeaderValue = CLASSES["HeaderValue"]


def descriptors_of(request: Any) -> list[Descriptor]:
    """What a request asks for."""
    return [
        Descriptor(
            {entry.key: entry.value for entry in descriptor.entries},
            descriptor.hits_addend.value if descriptor.HasField("hits_addend") else None,
            Override(descriptor.limit.requests_per_unit, descriptor.limit.unit)
            if descriptor.HasField("limit")
            else None,
            descriptor.is_negative_hits,
        )
        for descriptor in request.descriptors
    ]


def message_of(response: Response) -> Any:
    """The message that says it."""
    statuses = [
        _DescriptorStatus(code=status.code)
        if status.name is None
        else _DescriptorStatus(
            code=status.code,
            current_limit=_RateLimit(requests_per_unit=status.requests_per_unit, unit=status.unit, name=status.name),
            limit_remaining=status.remaining,
            duration_until_reset=_Duration(seconds=status.reset_seconds),
        )
        for status in response.statuses
    ]
    return RateLimitResponse(
        overall_code=response.code,
        statuses=statuses,
        response_headers_to_add=[_HeaderValue(key=key, value=value) for key, value in response.response_headers],
        request_headers_to_add=[_HeaderValue(key=key, value=value) for key, value in response.request_headers],
        raw_body=response.body,
    )
