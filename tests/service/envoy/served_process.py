"""``zae-limiter serve --envoy-bind`` as a process, for tests, and a client of both its protocols."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import httpx

from zae_limiter.service.envoy.messages import METHOD, SERVICE, RateLimitRequest, RateLimitResponse

SECONDS = 20.0


class Served:
    """A process that serves, and a client of both its protocols."""

    def __init__(self, process: subprocess.Popen[str], address: str, envoy: str) -> None:
        self.process = process
        self.envoy_port = int(envoy.rpartition(":")[2])
        self._http = httpx.Client(base_url=address, timeout=SECONDS)
        self._channel = grpc.insecure_channel(envoy)
        self._ask = self._channel.unary_unary(
            f"/{SERVICE}/{METHOD}",
            request_serializer=RateLimitRequest.SerializeToString,
            response_deserializer=RateLimitResponse.FromString,
        )

    def take(self, entity: str) -> bool:
        """Take one by HTTP; whether it was granted."""
        asked = {"entity": entity, "resource": "default", "consume": {"requests": 1}}
        status = self._http.post("/v1/take", json=asked).status_code
        assert status in (200, 429)
        return status == 200

    def ask(self, entity: str, token: str | None = None) -> Any:
        """What Envoy is answered when it asks for one request of an entity."""
        return self.send({"entity": entity}, token=token)

    def send(self, entries: dict[str, str], hits: int | None = None, *, token: str | None = None) -> Any:
        """What Envoy is answered to one descriptor."""
        request = RateLimitRequest(domain="default")
        descriptor = request.descriptors.add()
        for key, value in entries.items():
            descriptor.entries.add(key=key, value=value)
        if hits is not None:
            descriptor.hits_addend.value = hits
        metadata = () if token is None else (("authorization", f"Bearer {token}"),)
        return self._ask(request, metadata=metadata, timeout=SECONDS)

    def settle(self, lease: str, **actual: int) -> None:
        """Settle a lease by HTTP."""
        answer = self._http.post(f"/v1/leases/{lease}/settle", json={"actual": actual})
        assert answer.status_code == 200, answer.text

    def metrics(self) -> str:
        """What monitoring reads."""
        return self._http.get("/metrics").text

    def end(self) -> int:
        """What the process ends with after a signal."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(SECONDS)

    def close(self) -> None:
        self._channel.close()
        self._http.close()


@contextmanager
def served(url: str, *options: str) -> Iterator[Served]:
    told = ["serve", "--url", url, "--bind", "127.0.0.1:0", "--envoy-bind", "127.0.0.1:0", "--json", *options]
    process = subprocess.Popen(
        [sys.executable, "-m", "zae_limiter", *told],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"},
    )
    assert process.stdout is not None
    try:
        assert select.select([process.stdout], [], [], SECONDS)[0], "it did not start"
        lines = [process.stdout.readline()]
        while lines[-1] not in ("", "}\n"):
            lines.append(process.stdout.readline())
        document = json.loads("".join(lines))
        client = Served(process, document["address"], document["envoy"])
        try:
            yield client
        finally:
            client.close()
    finally:
        process.kill()
        process.wait(SECONDS)
        process.stdout.close()
