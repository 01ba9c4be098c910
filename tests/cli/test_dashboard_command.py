"""``zae-limiter dashboard``: it tells an address that works once, and ends by a signal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from zae_limiter import Limit, SyncRateLimiter


@pytest.mark.parametrize("read_only", [False, True])
def test_the_address_is_told_and_its_code_is_exchanged(tmp_path: Path, read_only: bool) -> None:
    url = f"sqlite:///{tmp_path}/limits.db"
    with SyncRateLimiter.open(url) as limiter:
        limiter.set_system_defaults([Limit.per_minute("rpm", 10)])
    words = ["dashboard", "--url", url, "--json", *(["--read-only"] if read_only else [])]
    process = subprocess.Popen(
        [sys.executable, "-m", "zae_limiter", *words],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stdout is not None
        told = "".join(iter(process.stdout.readline, "}\n")) + "}"
        address, _, code = json.loads(told)["address"].partition("/#once=")
        assert address.startswith("http://127.0.0.1:")
        with httpx.Client(base_url=address) as client:
            assert "<title>zae-limiter</title>" in client.get("/").text
            assert client.get("/v1/limits").status_code == 401
            token = client.post("/v1/session", json={"once": code}).json()["token"]
            client.headers["authorization"] = f"Bearer {token}"
            assert client.get("/v1/limits").json()["limits"][0]["word"] == "rpm:10/min"
            changed = client.put("/v1/limits", json={"limits": ["rpm:20"]})
            assert changed.status_code == (403 if read_only else 200)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait(20)
        process.stdout.close()


def test_a_database_that_is_not_there_is_told(tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "zae_limiter", "dashboard", "--no-open", "--url", f"sqlite:///{tmp_path}/none.db"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (finished.returncode, "none.db" in finished.stderr) == (1, True)
