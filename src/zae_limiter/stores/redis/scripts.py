"""The scripts, and the digests that the server knows them by."""

from __future__ import annotations

from hashlib import sha1
from importlib.resources import files
from typing import Final

_ALSO: Final = {"draw": ("plain", "claims"), "settle": ("plain",), "withdraw": ("claims",)}
"""What else some scripts are made of."""


class Script:
    """One script: its text, made of files of ``lua/``, and its digest."""

    __slots__ = ("name", "sha", "text")

    def __init__(self, name: str) -> None:
        folder = files("zae_limiter.stores.redis") / "lua"
        parts = ("arithmetic", "kinds", "buckets", *_ALSO.get(name, ()), name)
        self.name = name
        self.text = "\n".join((folder / f"{part}.lua").read_text(encoding="utf-8") for part in parts).encode()
        self.sha = sha1(self.text, usedforsecurity=False).hexdigest().encode()

    def __repr__(self) -> str:
        return f"<script {self.name}>"


DRAW: Final = Script("draw")
SETTLE: Final = Script("settle")
SHOW: Final = Script("show")
USAGE: Final = Script("usage")
COMMIT: Final = Script("commit")
RENEW: Final = Script("renew")
WITHDRAW: Final = Script("withdraw")

BY_DIGEST: Final = {script.sha: script for script in (DRAW, SETTLE, SHOW, USAGE, COMMIT, RENEW, WITHDRAW)}
