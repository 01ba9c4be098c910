"""What the service adds to an empty endpoint of Starlette on the same uvicorn: the server's CPU, requests a second.

Run it with ``python benchmarks/service.py``. Every server is a process of its own, the service with a limiter in
memory; eight connections ask in turns, each for its next answer. The CPU is that of the server alone. Requests a
second are of all processes on this machine together, the client too.

An empty endpoint reads no body and says nothing. The floor is what is left of ``/v1/take`` without a limiter: a
Starlette endpoint that parses the same JSON body, and answers the same document with the same header fields.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from comparing import Comparison, Goal, find
from measuring import Contender, Pace, measure
from presenting import circumstances, show, write

PACKAGES = ("zae-limiter", "starlette", "uvicorn", "httptools", "uvloop")
CONNECTIONS = 8
THOROUGH = Pace(rounds=21, seconds=0.2)
BRIEF = Pace(rounds=7, seconds=0.1)
IDLE_S = 2.0
"""uvicorn hangs up after five seconds of silence."""

CPU_GOAL = Goal(2.2, at_most=True)
RATE_GOAL = Goal(0.5)

STARLETTE = """
import socket, sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

async def empty(request):
    return Response(b"{}")

async def floor(request):
    body = await request.json()
    limits = [
        {"entity": body["entity"], "name": name, "available": 10**12 - amount, "burst": 10**12}
        for name, amount in body["consume"].items()
    ]
    headers = {
        "cache-control": "no-store",
        "ratelimit-policy": '"rpm";q=1000000000000;w=60, "tpm";q=1000000000000;qu="tokens";w=60',
        "ratelimit": '"rpm";r=999999999999;t=1, "tpm";r=999999999500;t=1',
    }
    return JSONResponse({"consumed": body["consume"], "degraded": False, "limits": limits}, 200, headers)

listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
app = Starlette(routes=[Route("/v1/take", globals()[sys.argv[1]], methods=["POST"])])
config = uvicorn.Config(app, http="httptools", loop="uvloop", log_config=None, access_log=False, lifespan="off",
    proxy_headers=False, server_header=False)
uvicorn.Server(config).run([listener])
"""

SERVICE = """
import sys, uvloop
from pathlib import Path
from zae_limiter import Limit
from zae_limiter.service.app import create_app
from zae_limiter.service.backend import Backend
from zae_limiter.service.guard import Guard
from zae_limiter.service.server import Bind, listen, serve
from zae_limiter.service.tokens import TokenFile

async def run():
    listener = listen(Bind("127.0.0.1", 0))
    backend = Backend.open("memory://")
    await backend.limiter().set_system_defaults([Limit.per_minute("rpm", 10**12), Limit.per_minute("tpm", 10**12)])
    tokens = TokenFile(Path(sys.argv[1])) if sys.argv[1:] else None
    if tokens is not None:
        tokens.load()
    print(listener.getsockname()[1], flush=True)
    await serve(create_app(backend, Guard(tokens)), backend, listener)

uvloop.run(run())
"""


class Server:
    """One server in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self._cpu_clock = (~process.pid << 3) | 2  # Linux: the clock of all threads of a process
        self._port = port
        self._connections: list[socket.socket] = []
        self._asked_at = float("-inf")

    def cpu(self) -> float:
        """Seconds of CPU that it has used."""
        return time.clock_gettime(self._cpu_clock)

    def ask(self, request: bytes, times: int) -> None:
        """Ask so many times, over all connections."""
        if time.monotonic() - self._asked_at > IDLE_S:
            self._connect()
        left = times
        while left > 0:
            asked = self._connections[: min(left, CONNECTIONS)]
            for connection in asked:
                connection.sendall(request)
            for connection in asked:
                _read_answer(connection)
            left -= len(asked)
        self._asked_at = time.monotonic()

    def _connect(self) -> None:
        """Anew: a server hangs up on connections that were silent while others were asked."""
        self.close()
        self._connections = [socket.create_connection(("127.0.0.1", self._port)) for _ in range(CONNECTIONS)]

    def close(self) -> None:
        """Hang up."""
        for connection in self._connections:
            connection.close()


def _read_answer(connection: socket.socket) -> None:
    answer = _received(connection)
    while b"\r\n\r\n" not in answer:
        answer += _received(connection)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.split(b" ", 2)[1] in (b"200", b"201"), answer
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    while len(body) < length:
        body += _received(connection)


def _received(connection: socket.socket) -> bytes:
    data = connection.recv(65_536)
    if not data:
        raise ConnectionError("the server hung up in the middle of an answer")
    return data


@contextmanager
def server(code: str, *arguments: str) -> Iterator[Server]:
    """A server, until the block ends."""
    process = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        running = Server(process, int(process.stdout.readline()))
        yield running
        running.close()
    finally:
        os.kill(process.pid, signal.SIGTERM)
        process.wait(30)


def request(path: str, *headers: str) -> bytes:
    """A request, as a client sends it."""
    body = '{"entity": "key-1", "resource": "gpt-4", "consume": {"rpm": 1, "tpm": 500}}'
    lines = (
        f"POST {path} HTTP/1.1",
        "host: localhost",
        "content-type: application/json",
        f"content-length: {len(body)}",
        *headers,
    )
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


def main() -> None:
    """Measure, show, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few rounds: for trying out, not for quoting")
    pace = BRIEF if parser.parse_args().quick else THOROUGH
    about = circumstances(PACKAGES)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        token = _token_in(folder / "tokens.json")
        empty = stack.enter_context(server(STARLETTE, "empty"))
        floor = stack.enter_context(server(STARLETTE, "floor"))
        service = stack.enter_context(server(SERVICE))
        guarded = stack.enter_context(server(SERVICE, str(folder / "tokens.json")))
        servers = (empty, floor, service, guarded)
        take, lease = request("/v1/take"), request("/v1/leases")
        with_token = request("/v1/take", f"authorization: Bearer {token}")

        def asks(name: str, does: str, asked: Server, what: bytes) -> Contender:
            return Contender(name, does, lambda times: asked.ask(what, times))

        findings = []
        for title, timer, cpu in (
            ("CPU of the server", lambda: sum(each.cpu() for each in servers), True),
            ("requests a second", time.perf_counter, False),
        ):
            nothing = asks(f"empty endpoint ({title})", "one request", empty, take)
            contenders = {
                "the floor": asks(f"the floor ({title})", "the same JSON, no limiter", floor, take),
                "/v1/take": asks(f"/v1/take ({title})", "one request", service, take),
                "/v1/take, with a token": asks(
                    f"/v1/take, with a token ({title})", "one request", guarded, with_token
                ),
                "/v1/leases": asks(f"/v1/leases ({title})", "one request, with a record", service, lease),
            }
            goal = CPU_GOAL if cpu else RATE_GOAL
            rows = [
                Comparison(
                    f"{path}: {title}", ours, nothing, goal if path.startswith("/v1/take") else None, cost_ratio=cpu
                )
                for path, ours in contenders.items()
            ]
            costs = measure([nothing, *contenders.values()], pace, timer=timer)
            findings += [find(row, costs) for row in rows]
    show(findings, about, counted="CPU of the server, or time on the wall")
    print(f"written: {write('service', findings, about)}")


def _token_in(path: Path) -> str:
    from zae_limiter.service.tokens import new_token, write_tokens

    text, token = new_token("benchmark", ["take", "read"])
    write_tokens(path, [token])
    return text


if __name__ == "__main__":
    main()
