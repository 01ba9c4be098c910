"""What the plans of this store ask for, as it is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from zae_limiter.running.plan import Request
from zae_limiter.stores.redis.scripts import BY_DIGEST, Script
from zae_limiter.stores.redis.wire import Part, bulk, command
from zae_limiter.stores.redis.write_marks import Mark


class Sent(NamedTuple):
    """Bytes, how many replies they have, and how many of those, the first ones, only say that a script was loaded."""

    data: bytes
    replies: int
    loads: int = 0


class Commands(Request[list[Any]]):
    """Some commands in one write, which may be done twice: reads, and writes that say how something is to be."""

    __slots__ = ("commands", "tag")
    repeated = False

    def __init__(self, tag: str, *commands: Sequence[Part]) -> None:
        self.tag = tag
        self.commands = commands

    def sent(self, repeated: bool, loading: bool) -> Sent:
        """As it is sent. ``loading``: the server lacks a script."""
        data = b"".join(command(*one) for one in self.commands)
        if not loading:
            return Sent(data, len(self.commands))
        scripts = {BY_DIGEST[one[1]] for one in self.commands if one[0] == "EVALSHA" and isinstance(one[1], bytes)}
        loads = b"".join(load(script) for script in scripts)
        return Sent(loads + data, len(scripts) + len(self.commands), len(scripts))


class MarkedScript(Request[list[Any]]):
    """A script that leaves a mark when it changes something, so that it can be repeated.

    ``before`` are its parts up to the key of the marks, ``middle`` those between that key and the bit, ``after`` those
    behind the flags.
    """

    __slots__ = ("after", "before", "mark", "middle", "parts", "repeated", "script", "tag")

    def __init__(
        self, tag: str, script: Script, parts: int, before: bytes, middle: bytes, after: bytes, mark: Mark
    ) -> None:
        self.tag = tag
        self.script = script
        self.parts = parts
        self.before = before
        self.middle = middle
        self.after = after
        self.mark = mark
        self.repeated = False  # whether a plan asks for it again

    def sent(self, repeated: bool, loading: bool) -> Sent:
        """As it is sent. ``repeated``: it may have been done."""
        mark = self.mark
        data = b"*%d\r\n$7\r\nEVALSHA\r\n$40\r\n%b\r\n%b%b%b%b%b%b" % (
            self.parts,
            self.script.sha,
            self.before,
            mark.packed_key,
            self.middle,
            mark.bit,
            mark.flags(repeated),
            self.after,
        )
        return Sent(load(self.script) + data, 2, 1) if loading else Sent(data, 1)


def load(script: Script) -> bytes:
    """The command that makes a script known to a server.

    A script that comes by EVAL may be forgotten sooner by newer servers.
    """
    return command("SCRIPT", "LOAD", script.text)


def packed(*parts: Part) -> bytes:
    """Some parts of a command."""
    return b"".join(map(bulk, parts))
