"""The files of the page, served from memory under a policy that lets the browser load nothing from elsewhere."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)

TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
"""What is served; licences beside the files are not."""

HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}


def static_files() -> dict[str, bytes]:
    """Every file of the page, by its path under ``/``."""
    found: dict[str, bytes] = {}

    def collect(folder: Traversable, path: str) -> None:
        for entry in folder.iterdir():
            if entry.is_dir():
                collect(entry, f"{path}{entry.name}/")
            elif entry.name.rpartition(".")[2] in TYPES:
                found[path + entry.name] = entry.read_bytes()

    collect(files("zae_limiter.dashboard") / "static", "")
    return found


def pages() -> list[Route]:
    """The routes of the page."""
    return [
        Route("/" if name == "index.html" else f"/{name}", _answer(name, content), methods=["GET"])
        for name, content in sorted(static_files().items())
    ]


def _answer(name: str, content: bytes) -> Callable[[Request], Awaitable[Response]]:
    etag = f'"{hashlib.sha256(content).hexdigest()[:24]}"'
    headers = {**HEADERS, "content-type": TYPES[name.rpartition(".")[2]], "etag": etag}

    async def answer(request: Request) -> Response:
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers)

    return answer
