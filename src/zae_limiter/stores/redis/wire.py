"""Redis's protocol, version 2: commands to bytes, bytes to replies. Pure."""

from __future__ import annotations

from typing import Any, Final

Part = bytes | str | int


class ServerError(Exception):
    """The server refused a command. ``code`` is the first word of what it said."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.code, _, self.rest = text.partition(" ")


INCOMPLETE: Final[Any] = type("Incomplete", (), {"__repr__": lambda self: "INCOMPLETE"})()


class NotRedis(ValueError):
    """What came is not Redis's protocol."""


def bulk(part: Part) -> bytes:
    """One part of a command."""
    data = part if isinstance(part, bytes) else str(part).encode()
    return b"$%d\r\n%b\r\n" % (len(data), data)


def command(*parts: Part) -> bytes:
    """A whole command."""
    return b"*%d\r\n%b" % (len(parts), b"".join(map(bulk, parts)))


def parse(data: bytes, at: int) -> tuple[Any, int]:
    """The reply that begins at ``at``, and where the next begins; ``INCOMPLETE`` if its end has not come yet.

    An error is a :class:`ServerError`, as a value: it may be one of several replies.
    """
    end = data.find(b"\r\n", at)
    if end < 0:
        return INCOMPLETE, at
    kind = data[at : at + 1]
    after = end + 2
    if kind == b"$":
        return _bulk_reply(data, at, after, int(data[at + 1 : end]))
    if kind == b"*":
        return _array_reply(data, at, after, int(data[at + 1 : end]))
    if kind == b":":
        return int(data[at + 1 : end]), after
    if kind == b"+":
        return data[at + 1 : end], after
    if kind == b"-":
        return ServerError(data[at + 1 : end].decode(errors="replace")), after
    raise NotRedis(f"this is not Redis's protocol: {data[at : at + 40]!r}")


def _bulk_reply(data: bytes, at: int, after: int, size: int) -> tuple[Any, int]:
    if size < 0:
        return None, after
    stop = after + size
    return (INCOMPLETE, at) if len(data) < stop + 2 else (data[after:stop], stop + 2)


def _array_reply(data: bytes, at: int, after: int, count: int) -> tuple[Any, int]:
    if count < 0:
        return None, after
    items = []
    for _ in range(count):
        item, after = parse(data, after)
        if item is INCOMPLETE:
            return INCOMPLETE, at
        items.append(item)
    return items, after
