"""What load balancers and monitoring ask."""

from __future__ import annotations

from zae_limiter.service.operations import Call, json_reply
from zae_limiter.service.problems import Reply, problem


async def live(call: Call) -> Reply:
    """The process runs."""
    return json_reply({"ok": True})


async def ready(call: Call) -> Reply:
    """Whether requests can be answered."""
    if await call.backend.is_ready():
        return json_reply({"ok": True})
    why = "the process is about to end" if call.backend.is_ending else "the store does not answer"
    return problem(503, why, ok=False)
