"""The messages on the wire are Envoy's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from zae_limiter.service.envoy import messages
from zae_limiter.service.envoy.descriptors import Descriptor, Override
from zae_limiter.service.envoy.messages import RateLimitRequest, RateLimitResponse, descriptors_of, message_of
from zae_limiter.service.envoy.responses import DescriptorStatus, Response

PROTO = Path(messages.__file__).with_name("rls.proto")


def compiled(folder: Path) -> FileDescriptorProto:
    """What protoc makes of the file."""
    result = folder / "set"
    command = [sys.executable, "-W", "ignore", "-m", "grpc_tools.protoc", f"-I{PROTO.parent}"]
    subprocess.run([*command, f"--descriptor_set_out={result}", PROTO.name], check=True, timeout=60)
    (file,) = FileDescriptorSet.FromString(result.read_bytes()).file
    return file


def test_the_table_is_what_the_file_says(tmp_path: Path) -> None:
    file = compiled(tmp_path)
    (service,) = file.service
    (method,) = service.method
    assert (f"{file.package}.{service.name}", method.name) == (messages.SERVICE, messages.METHOD)
    assert (method.input_type, method.output_type) == (
        f".{file.package}.RateLimitRequest",
        f".{file.package}.RateLimitResponse",
    )
    for message in file.message_type:
        for field in message.field:
            field.ClearField("json_name")
    assert list(messages.file_descriptor().message_type) == list(file.message_type)


def test_what_envoy_sends_is_read() -> None:
    """Bytes as Envoy writes them, with a field that is not in our table (a string, number 15)."""
    entry = b"\x0a\x06entity\x12\x05key-1"
    descriptor = (
        b"\x0a\x0f" + entry + b"\x12\x04\x08\x09\x10\x02" + b"\x1a\x03\x08\x90\x03" + b"\x20\x01" + b"\x7a\x01x"
    )
    request = RateLimitRequest.FromString(
        b"\x0a\x04shop" + b"\x12" + bytes([len(descriptor)]) + descriptor + b"\x12\x11\x0a\x0f" + entry + b"\x18\x03"
    )
    assert (request.domain, request.hits_addend) == ("shop", 3)
    assert descriptors_of(request) == [
        Descriptor({"entity": "key-1"}, 400, Override(9, 2), is_negative=True),
        Descriptor({"entity": "key-1"}, None, None, is_negative=False),
    ]


def test_a_stated_zero_is_not_an_amount_that_is_missing() -> None:
    request = RateLimitRequest.FromString(b"\x12\x02\x1a\x00")
    assert descriptors_of(request) == [Descriptor({}, 0)]


def test_an_answer_is_written() -> None:
    statuses = [DescriptorStatus(2, "tpm", 1_000, 3, 17, 720), DescriptorStatus(1)]
    message = message_of(Response(2, statuses, [("retry-after", "720")], [("x-zael-lease", "t")], b"{}"))
    read = RateLimitResponse.FromString(message.SerializeToString())
    assert (read.overall_code, read.raw_body) == (2, b"{}")
    limit = read.statuses[0].current_limit
    assert (limit.name, limit.requests_per_unit, limit.unit) == ("tpm", 1_000, 3)
    assert (read.statuses[0].limit_remaining, read.statuses[0].duration_until_reset.seconds) == (17, 720)
    assert not read.statuses[1].HasField("current_limit")
    assert [(header.key, header.value) for header in read.response_headers_to_add] == [("retry-after", "720")]
    assert [(header.key, header.value) for header in read.request_headers_to_add] == [("x-zael-lease", "t")]
