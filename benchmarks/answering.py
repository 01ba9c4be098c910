"""A server of its own that always gives the same answer, so that only the client is measured."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

ANSWERING = """
import asyncio, ssl, sys, zlib
body, certificate = sys.argv[1].encode(), sys.argv[2:]
head = f"HTTP/1.1 200 OK\\r\\nContent-Type: application/x-amz-json-1.0\\r\\nx-amz-crc32: {zlib.crc32(body)}\\r\\n"
head += f"Date: Mon, 16 Nov 2026 02:13:33 GMT\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n"
reply = head.encode() + body

class Answering(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.buffer = transport, b""

    def data_received(self, data):
        self.buffer += data
        end = self.buffer.find(b"\\r\\n\\r\\n")
        if end >= 0:
            head = self.buffer[:end].lower()
            length = int(head.partition(b"content-length: ")[2].partition(b"\\r\\n")[0])
            if len(self.buffer) >= end + 4 + length:
                self.buffer = b""
                self.transport.write(reply)

async def main():
    context = None
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
    server = await asyncio.get_running_loop().create_server(Answering, "127.0.0.1", 0, ssl=context, backlog=200)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

asyncio.run(main())
"""


@contextmanager
def answering(reply: str, certificate: Sequence[str] = ()) -> Iterator[str]:
    """A server, as a URL."""
    command = [sys.executable, "-c", ANSWERING, reply, *certificate]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield f"{'https' if certificate else 'http'}://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


def certificate_in(folder: str) -> list[str]:
    """A certificate and its key, by openssl."""
    paths = [f"{folder}/certificate.pem", f"{folder}/key.pem"]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-out", paths[0], "-keyout", paths[1], "-days", "2", "-subj", "/CN=bench"]
    subprocess.run([*command, "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    return paths
