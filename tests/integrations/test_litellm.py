"""LiteLLM's proxy, as it is, with our callback: what the provider billed is what its keys were charged."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.provider_books import eventually
from zae_limiter import Limit, SyncRateLimiter
from zae_limiter.testing import FakeProvider

ROOT = Path(__file__).parents[2]
PROXY = ROOT / ".engines" / "litellm" / "bin" / "litellm"
MESSAGES = [{"role": "user", "content": "how are you today, my friend?"}]
START_S = 200
KEY = f"sk-{secrets.token_hex(32)}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'limits.db'}"


@pytest.fixture
def proxy(tmp_path: Path, provider: FakeProvider, store: str) -> Iterator[str]:
    """A proxy whose one model is the provider's; where it listens."""
    if not PROXY.exists():
        pytest.skip("LiteLLM is not installed: make setup")
    config = tmp_path / "config.yaml"
    config.write_text(
        f"""
model_list:
  - model_name: gpt
    litellm_params: {{model: openai/gpt, api_base: "{provider.url}/v1", api_key: k, max_retries: 0}}
litellm_settings:
  callbacks: zae_limiter.integrations.litellm.limiter
  num_retries: 0
"""
    )
    port = free_port()
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "ZAEL_URL": store,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_MODE": "PRODUCTION",
        "LITELLM_MASTER_KEY": KEY,
        "NO_PROXY": "127.0.0.1",
    }
    command = [str(PROXY), "--config", str(config), "--port", str(port), "--host", "127.0.0.1", "--telemetry", "False"]
    log = (tmp_path / "proxy.log").open("wb")
    process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT, cwd=tmp_path)
    try:
        _wait_for(f"http://127.0.0.1:{port}", process, tmp_path / "proxy.log")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)
        log.close()


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    give_up = time.monotonic() + START_S
    while time.monotonic() < give_up:
        assert process.poll() is None, log.read_text()[-3000:]
        try:
            if httpx2.get(f"{url}/health/liveliness", timeout=5).status_code == 200:
                return
        except httpx2.HTTPError:
            time.sleep(0.2)
    raise AssertionError(log.read_text()[-3000:])


@pytest.mark.timeout(300)
def test_the_proxy_charges_what_the_provider_bills(proxy: str, provider: FakeProvider, store: str) -> None:
    limiter = SyncRateLimiter.open(store)
    limiter.set_system_defaults([Limit.per_day("rpm", 5), Limit.per_day("tpm", 100_000)])
    entity = "key:anonymous"

    def chat(**options: Any) -> httpx2.Response:
        body = {"model": "gpt", "messages": MESSAGES, "max_tokens": 20, **options}
        return httpx2.post(
            f"{proxy}/v1/chat/completions", json=body, timeout=60, headers={"authorization": f"Bearer {KEY}"}
        )

    def charged() -> dict[str, int]:
        (bucket,) = limiter.get_status(entity).buckets
        return {level.limit_name: level.total_consumed for level in bucket.limits}

    def books() -> dict[str, int]:
        return {"rpm": provider.books.requests, "tpm": provider.books.total_tokens}

    assert chat().json()["usage"]["total_tokens"] == provider.books.total_tokens
    entity = limiter.list_active_entities()[0]
    assert entity.startswith("key:")
    eventually(lambda: charged() == books())
    assert b"[DONE]" in chat(stream=True, stream_options={"include_usage": True}).content
    eventually(lambda: charged() == books())
    assert b"[DONE]" in chat(stream=True).content
    eventually(lambda: charged() == books())
    provider.fail(500)
    assert chat().status_code >= 500
    eventually(lambda: charged() == books())
    assert chat().status_code == 200
    refused = chat()
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) > 0
    assert provider.books.requests == 5
    limiter.close()
