"""Requests are read as the calls they are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.llm import Usage, read_call

MESSAGES = [{"role": "user", "content": "x" * 41}]


def call(path: str, body: Any, default_output: int = 1024) -> Any:
    return read_call(path, json.dumps(body).encode(), default_output)


@pytest.mark.parametrize(
    ("path", "body", "dialect", "model", "estimate"),
    [
        ("/v1/chat/completions", {"model": "gpt", "messages": MESSAGES}, "openai", "gpt", (11, 1024)),
        ("/v1/chat/completions", {"model": "gpt", "messages": MESSAGES, "max_tokens": 7}, "openai", "gpt", (11, 7)),
        ("/v1/chat/completions", {"model": "g", "messages": [], "max_tokens": 7, "n": 3}, "openai", "g", (0, 21)),
        ("/v1/responses", {"model": "gpt", "input": "abcd", "max_output_tokens": 9}, "openai", "gpt", (1, 9)),
        ("/v1/embeddings", {"model": "gpt", "input": ["abcd", "efgh"]}, "openai", "gpt", (2, 0)),
        ("/openai/deployments/prod/chat/completions", {"messages": MESSAGES}, "openai", "prod", (11, 1024)),
        ("/v1/messages", {"model": "c", "system": "abcd", "messages": MESSAGES, "max_tokens": 9}, "anthropic", "c",
         (12, 9)),
        ("/v1beta/models/gem:generateContent", {"contents": [{"parts": [{"text": "abcd"}]}]}, "gemini", "gem",
         (1, 1024)),
        ("/v1beta/models/gem:streamGenerateContent", {"generationConfig": {"maxOutputTokens": 5}}, "gemini", "gem",
         (0, 5)),
        ("/v1beta/models/gem:embedContent", {"content": {"parts": [{"text": "abcd"}]}}, "gemini", "gem", (1, 0)),
    ],
)  # fmt: skip
def test_model_and_estimate(path: str, body: Any, dialect: str, model: str, estimate: tuple[int, int]) -> None:
    found = call(path, body)
    assert (found.dialect, found.model) == (dialect, model)
    assert (found.estimate.input, found.estimate.output) == estimate


def test_data_is_no_text() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 10_000}}
    inline = {"inline_data": {"mimeType": "image/png", "data": "A" * 10_000}}
    body = {
        "model": "gpt",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "abcd"}, image, inline]}],
    }
    assert call("/v1/chat/completions", body).estimate.input == 1


def test_what_is_no_call() -> None:
    for path in ("/v1/models", "/v1/files", "/", "/v1/chat/completions/extra"):
        assert call(path, {}) is None
    for content in (b"", b"not json", b"[1]", b"\xff\xfe"):
        found = read_call("/v1/chat/completions", content)
        assert found is None or found.body == {}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(
            ["model", "messages", "content", "max_tokens", "n", "stream", "generationConfig", "tools", "input"]
        ), inner),
        max_leaves=20,
    )
)  # fmt: skip
def test_no_body_upsets_the_reader(body: Any) -> None:
    for path in ("/v1/chat/completions", "/v1/messages", "/v1beta/models/gem:generateContent"):
        found = read_call(path, json.dumps(body).encode())
        if found is not None:
            assert isinstance(found.estimate, Usage)
            assert 0 <= found.estimate.output <= 1024
            assert found.estimate.input >= 0
