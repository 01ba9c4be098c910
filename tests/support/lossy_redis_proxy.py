"""A proxy before a Redis server that loses replies and delivers requests late, by chance but by seed."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from engines.servers import HOST

FATES = {"fine": 94, "reply lost": 2, "request late": 2, "request lost": 2}
LATEST_S = 0.05


class LossyProxy:
    """Where it listens, and what became of what it was sent."""

    def __init__(self, port: int, seed: int) -> None:
        self.fates: Counter[str] = Counter()
        self.harmless = True
        self._server = (HOST, port)
        self._rng = random.Random(seed)
        self._lock = threading.Lock()
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._late: list[threading.Thread] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}"

    def close(self) -> None:
        """End it. Requests that are late still arrive."""
        self._listener.close()
        for link in list(self._open):
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
        for thread in self._late:
            thread.join(5)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._server, 5) as server, suppress(OSError):
            for link in (client, server):
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._open.add(link)
            client.settimeout(None)
            server.settimeout(None)
            try:
                threading.Thread(target=self._pump_back, args=(server, client), daemon=True).start()
                while request := client.recv(1 << 20):
                    if not self._forward(request, server):
                        return
            finally:
                self._open -= {client, server}

    def _forward(self, request: bytes, server: socket.socket) -> bool:
        """Whether the connection goes on."""
        with self._lock:
            names = list(FATES)
            fate = "fine" if self.harmless else self._rng.choices(names, list(FATES.values()))[0]
            self.fates[fate] += 1
            pause = self._rng.uniform(0, LATEST_S)
        if fate == "fine":
            server.sendall(request)
            return True
        if fate == "reply lost":
            self._alone(request)
        elif fate == "request late":
            thread = threading.Timer(pause, self._alone, (request,))
            thread.daemon = True
            thread.start()
            self._late.append(thread)
        return False

    def _alone(self, request: bytes) -> None:
        """Let the server do it; no client hears of it."""
        with suppress(OSError), socket.create_connection(self._server, 5) as server:
            server.sendall(request)
            server.settimeout(5)
            server.recv(1 << 20)

    def _pump_back(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while reply := server.recv(1 << 20):
                client.sendall(reply)
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)


@contextmanager
def lossy(port: int, seed: int) -> Iterator[LossyProxy]:
    """A proxy before the server at ``port``."""
    proxy = LossyProxy(port, seed)
    try:
        yield proxy
    finally:
        proxy.close()
        time.sleep(LATEST_S)
