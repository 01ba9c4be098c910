"""What the limiter costs behind Envoy: requests through a real Envoy, with us and with a service that only says yes.

Run it with ``python benchmarks/envoy.py``. Each service is a process of its own, grpcio's server with as many
threads. One Envoy has a listener for each, so that everything else is the same. The client is 32 connections that send
their next request when the last one is answered. Time on the wall says how many requests pass; the processor time is
that of the service alone.
"""

from __future__ import annotations

import argparse
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
from comparing import Comparison, Goal, find
from measuring import Contender, Costs
from presenting import circumstances, show, write

from zae_limiter import Limit, SyncRateLimiter
from zae_limiter.service.envoy.grpc_server import THREADS, EnvoyServer
from zae_limiter.service.envoy.messages import METHOD, SERVICE, RateLimitRequest, RateLimitResponse
from zae_limiter.service.envoy.rate_limit_service import RateLimitService

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from engines.envoy_proxy import Envoy, on_free_ports

PACKAGES = ("zae-limiter", "grpcio", "protobuf")
CONNECTIONS = 32
REQUEST = b"GET / HTTP/1.1\r\nhost: a\r\nx-key: key-1\r\n\r\n"
BODY = b"hello\n"
YES = "a service that says yes"
STORES = {"limiter, in memory": "memory", "limiter, SQLite": "sqlite"}
ROUNDS, SECONDS = 9, 0.8
QUICK_ROUNDS, QUICK_SECONDS = 3, 0.3
TYPES = "type.googleapis.com/envoy.extensions"

Config = dict[str, Any]


# The services, each in a process


def serve(kind: str) -> None:
    """Serve until the parent goes away."""
    if kind == "yes":
        server = grpc.server(ThreadPoolExecutor(THREADS), options=[("grpc.so_reuseport", 0)])
        method = grpc.unary_unary_rpc_method_handler(
            lambda request, context: RateLimitResponse(overall_code=1),
            request_deserializer=RateLimitRequest.FromString,
            response_serializer=RateLimitResponse.SerializeToString,
        )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: method}),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        _wait_for_parent(port)
        server.stop(0)
        return
    with tempfile.TemporaryDirectory() as folder:
        url = "memory://" if kind == "memory" else f"sqlite:///{folder}/limits.db"
        with SyncRateLimiter.open(url, create=True) as limiter:
            limiter.set_resource_defaults("api", [Limit.per_hour("requests", 10**12)])
            ours = EnvoyServer(RateLimitService(limiter.repository), "127.0.0.1:0")
            ours.start()
            _wait_for_parent(ours.port)
            ours.stop(0)


def _wait_for_parent(port: int) -> None:
    print(port, flush=True)
    sys.stdin.read()


@contextmanager
def service(kind: str) -> Iterator[tuple[int, int]]:
    """One of them: its process, and its port."""
    command = [sys.executable, __file__, "--serve", kind]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.pid, int(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait(10)


def cpu_seconds(pid: int) -> float:
    """What a process has used so far: Linux has a clock for each, whose number follows from its own."""
    return time.clock_gettime((~pid << 3) | 2)


# Envoy


def listener(name: str, route: Config, filters: list[Config]) -> Config:
    router = {"name": "router", "typed_config": {"@type": f"{TYPES}.filters.http.router.v3.Router"}}
    manager = {
        "@type": f"{TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "any",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [*filters, router],
    }
    return {
        "name": name,
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }


def limited_listener(name: str) -> Config:
    """One that asks the service of the same name."""
    key = {"request_headers": {"header_name": "x-key", "descriptor_key": "entity"}}
    resource = {"generic_key": {"descriptor_key": "resource", "descriptor_value": "api"}}
    route = {"cluster": "application", "rate_limits": [{"actions": [key, resource]}]}
    asking = {
        "@type": f"{TYPES}.filters.http.ratelimit.v3.RateLimit",
        "domain": "default",
        "failure_mode_deny": True,
        "timeout": "5s",
        "rate_limit_service": {
            "transport_api_version": "V3",
            "grpc_service": {"envoy_grpc": {"cluster_name": name}},
        },
    }
    filters = [{"name": "envoy.filters.http.ratelimit", "typed_config": asking}]
    return listener(name, {"match": {"prefix": "/"}, "route": route}, filters)


def cluster(name: str, *, http2: bool) -> Config:
    at = {"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}}}
    made: Config = {
        "name": name,
        "type": "STATIC",
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [at]}]},
    }
    if http2:
        kind = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
        options = {"@type": f"type.googleapis.com/{kind}", "explicit_http_config": {"http2_protocol_options": {}}}
        made["typed_extension_protocol_options"] = {kind: options}
    return made


def config(listeners: list[Config], clusters: Mapping[str, int]) -> Config:
    made = {
        "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}},
        "static_resources": {
            "listeners": listeners,
            "clusters": [cluster(name, http2=name != "application") for name in clusters],
        },
    }
    return on_free_ports(made, clusters)


def application() -> Config:
    """What answers behind Envoy is another Envoy, which costs least."""
    answer = {"status": 200, "body": {"inline_string": BODY.decode()}}
    return config([listener("application", {"match": {"prefix": "/"}, "direct_response": answer}, [])], {})


# The client


class Crowd:
    """Connections that each send one request after the other."""

    def __init__(self, port: int) -> None:
        self._links = [socket.create_connection(("127.0.0.1", port), 10) for _ in range(CONNECTIONS)]
        self._selector = selectors.DefaultSelector()
        for link in self._links:
            link.setblocking(False)
            self._selector.register(link, selectors.EVENT_READ)

    def run(self, seconds: float) -> tuple[int, float]:
        """How many requests were answered, and in which time."""
        started = time.perf_counter()
        give_up_at = started + seconds
        under_way, answered = len(self._links), 0
        for link in self._links:
            link.send(REQUEST)
        while under_way:
            for key, _ in self._selector.select(10):
                link: Any = key.fileobj
                data = link.recv(65_536)
                if not data.startswith(b"HTTP/1.1 200") or not data.endswith(BODY):
                    raise RuntimeError(f"a request was not answered as it should be: {data!r}")
                answered += 1
                if time.perf_counter() < give_up_at:
                    link.send(REQUEST)
                else:
                    under_way -= 1
        return answered, time.perf_counter() - started

    def close(self) -> None:
        self._selector.close()
        for link in self._links:
            link.close()


def measured(rounds: int, seconds: float) -> tuple[Costs, Costs]:
    """Seconds on the wall, and of the service's processor time, for each request; all services in turns."""
    with ExitStack() as held:
        kinds = {YES: "yes", **STORES}
        services = {name: held.enter_context(service(kind)) for name, kind in kinds.items()}
        behind = held.enter_context(Envoy(application()))
        clusters = {kinds[name]: port for name, (_, port) in services.items()}
        front = config(
            [limited_listener(name) for name in clusters],
            {**clusters, "application": behind.ports["application"]},
        )
        envoy = held.enter_context(Envoy(front))
        crowds = {name: Crowd(envoy.ports[kind]) for name, kind in kinds.items()}
        for crowd in crowds.values():
            held.callback(crowd.close)
            crowd.run(seconds)
        wall: dict[str, list[float]] = {name: [] for name in kinds}
        cpu: dict[str, list[float]] = {name: [] for name in kinds}
        names = list(kinds)
        for number in range(rounds):
            first = number % len(names)
            for name in (*names[first:], *names[:first]):
                before = cpu_seconds(services[name][0])
                answered, passed = crowds[name].run(seconds)
                wall[name].append(passed / answered)
                cpu[name].append((cpu_seconds(services[name][0]) - before) / answered)
        return Costs(wall), Costs(cpu)


def main() -> None:
    """Measure, show, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few rounds: for trying out, not for quoting")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        serve(asked.serve)
        return
    missing = Envoy.why_not_here()
    if missing:
        sys.exit(missing)
    about = circumstances(PACKAGES)
    pace = (QUICK_ROUNDS, QUICK_SECONDS) if asked.quick else (ROUNDS, SECONDS)
    wall, cpu = measured(*pace)

    def contender(name: str) -> Contender:
        return Contender(name, "one request through Envoy", lambda times: None)

    rows = []
    for store in STORES:
        goals = (Goal(0.75), Goal(1.6, at_most=True)) if store.endswith("memory") else (None, None)
        ours, theirs = contender(store), contender(YES)
        rows.append((wall, Comparison(f"{store}: requests per second", ours, theirs, goals[0])))
        rows.append((cpu, Comparison(f"{store}: CPU of the service", ours, theirs, goals[1], cost_ratio=True)))
    findings = [find(row, costs) for costs, row in rows]
    show(findings, about, counted="Time on the wall, or CPU of the service,")
    print(f"written: {write('envoy', findings, about)}")


if __name__ == "__main__":
    main()
