"""Limits for LiteLLM's proxy: of a key, its team and its organisation, over all instances of the proxy.

In its configuration::

    litellm_settings:
      callbacks: zae_limiter.integrations.litellm.limiter

The store is the one that ``ZAEL_URL`` names, the resource is the model, and the limits are ``rpm`` and ``tpm``.
Entities are made when they are first seen: ``key:NAME`` below ``team:ID`` below ``org:ID``.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from fastapi import HTTPException
from litellm.integrations.custom_logger import CustomLogger

from zae_limiter import EntityExistsError, Lease, RateLimiter, RateLimiterUnavailable, RateLimitExceeded
from zae_limiter.http_fields import Answer, refused, unavailable
from zae_limiter.llm.calls import DEFAULT_OUTPUT, characters
from zae_limiter.llm.usage import Usage, read_usage, tokens_in

__all__ = ["ProxyLimiter", "limiter"]

MOST_OPEN = 50_000
"""So many calls may be under way. The lease of one beyond is dropped: what it took stays taken."""

_NOT_IN_AN_ID = re.compile(r"[^A-Za-z0-9_.\-:@]")


class ProxyLimiter(CustomLogger):  # type: ignore[misc]
    """A callback of LiteLLM's proxy. ``limiter`` is opened on first use, if none is given."""

    def __init__(self, limiter: RateLimiter | None = None, *, default_output: int = DEFAULT_OUTPUT) -> None:
        super().__init__()
        self._limiter = limiter
        self._default_output = default_output
        self._known: set[str] = set()
        self._open: OrderedDict[str, tuple[Lease, int]] = OrderedDict()

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> dict[str, Any]:
        """Take before a call; raise what the proxy answers if it lacks."""
        if self._limiter is None:
            self._limiter = await RateLimiter.open()
        entity = await self._entity(self._limiter, user_api_key_dict)
        asked = tokens_in(sum(characters(data.get(name)) for name in ("messages", "input", "prompt", "tools")))
        allowed = data.get("max_tokens") or data.get("max_completion_tokens") or self._default_output
        wanted = {"rpm": 1, "tpm": asked + min(int(allowed), self._default_output)}
        lease = self._limiter.acquire(entity, _id("", data.get("model") or "unknown"), wanted)
        try:
            await lease.__aenter__()
        except RateLimitExceeded as error:
            raise _exception(refused(error, entity, compatible=True)) from error
        except RateLimiterUnavailable as error:
            raise _exception(unavailable()) from error
        self._open[_call_id(data)] = (lease, asked)
        while len(self._open) > MOST_OPEN:
            self._open.popitem(last=False)
        return data

    async def async_post_call_success_hook(self, data: dict[str, Any], user_api_key_dict: Any, response: Any) -> Any:
        """Settle to what an answer says."""
        await self._end(data, _usage_of(response))
        return response

    async def async_post_call_failure_hook(
        self,
        request_data: dict[str, Any],
        original_exception: Exception,
        user_api_key_dict: Any,
        traceback_str: str | None = None,
    ) -> None:
        """A call that failed counts as a request."""
        await self._end(request_data, Usage())

    async def async_post_call_streaming_iterator_hook(
        self, user_api_key_dict: Any, response: Any, request_data: dict[str, Any]
    ) -> AsyncIterator[Any]:
        """Pass a stream on, and settle at its end, or when its reader leaves."""
        stated: Usage | None = None
        counted = 0
        try:
            async for chunk in response:
                stated = _usage_of(chunk) or stated
                counted += _characters_of(chunk)
                yield chunk
        finally:
            _, asked = self._open.get(_call_id(request_data), (None, 0))
            await self._end(request_data, stated or Usage(input=asked, output=tokens_in(counted)))

    async def _end(self, data: dict[str, Any], used: Usage | None) -> None:
        lease, _ = self._open.pop(_call_id(data), (None, 0))
        if lease is not None:
            if used is not None:
                await lease.settle(rpm=1, tpm=used.total)
            await lease.__aexit__(None, None, None)

    async def _entity(self, limiter: RateLimiter, auth: Any) -> str:
        """The id of the key, which is made below its team and organisation when it is first seen."""
        key = _id("key:", getattr(auth, "key_alias", None) or getattr(auth, "token", None) or "anonymous")
        if key not in self._known:
            parent: str | None = None
            chain = [("org:", getattr(auth, "org_id", None)), ("team:", getattr(auth, "team_id", None))]
            for entity in [*(_id(kind, found) for kind, found in chain if found), key]:
                with suppress(EntityExistsError):
                    await limiter.create_entity(entity, parent_id=parent, cascade=parent is not None)
                parent = entity
            self._known.add(key)
        return key


def _id(kind: str, text: object) -> str:
    return kind + _NOT_IN_AN_ID.sub("_", str(text))[:200]


def _call_id(data: dict[str, Any]) -> str:
    return str(data.get("litellm_call_id") or id(data))


def _usage_of(answer: Any) -> Usage | None:
    """What an answer, or a piece of one, states."""
    said = getattr(answer, "usage", None)
    if said is None:
        return None
    return read_usage(said if isinstance(said, dict) else said.model_dump())


def _characters_of(chunk: Any) -> int:
    texts = [
        getattr(getattr(choice, "delta", None), "content", None) for choice in getattr(chunk, "choices", None) or ()
    ]
    return sum(len(text) for text in texts if isinstance(text, str))


def _exception(answer: Answer) -> HTTPException:
    headers = {name: value for name, value in answer.headers if name != "Content-Type"}
    return HTTPException(answer.status, json.loads(answer.body), headers)


limiter = ProxyLimiter()
"""What the configuration of the proxy names."""
