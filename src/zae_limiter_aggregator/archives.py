"""Where audit events are kept that have left the table: a bucket of S3, or a folder.

An archive keeps bytes under names like ``audit/year=2026/month=01/day=31/….jsonl.gz``. Keeping the same bytes under
the same name again changes nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from zae_limiter.exceptions import RateLimiterUnavailable, ValidationError
from zae_limiter.running.plan import Performer, Request

ARCHIVE_VARIABLE: Final = "ZAEL_ARCHIVE"

Result = TypeVar("Result")

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.\-]{1,61}[a-z0-9]").fullmatch
_SHAPE: Final = "must be a folder, or s3://BUCKET, with ?region= and &endpoint_url= where needed"


MOST_BYTES: Final = 64_000_000
"""How large an object may be, and what is packed in it. Ours hold a batch of a stream: a few megabytes."""


class ArchiveUnavailable(RateLimiterUnavailable):
    """An archive did not answer, or could not do what was asked."""


class Archive(Protocol):
    """Keeps bytes under names."""

    def keep(self, name: str, body: bytes) -> None:
        """Keep it; whatever was kept under this name before is replaced. Raises :class:`ArchiveUnavailable`."""
        ...

    def read(self, name: str) -> bytes:
        """What is kept under a name, if it has at most :data:`MOST_BYTES`."""
        ...

    def inside(self, folder: str) -> list[str]:
        """The names right inside of a folder (which ends with a slash, as the folders inside of it do), sorted."""
        ...


class KeepObject(Request[None]):
    """Keep bytes in the archive."""

    __slots__ = ("body", "name")

    def __init__(self, name: str, body: bytes) -> None:
        self.name = name
        self.body = body

    def __repr__(self) -> str:
        return f"KeepObject({self.name!r})"


def with_archive(perform: Performer, archive: Archive) -> Performer:
    """Who does what plans ask of a store and of an archive."""

    def perform_either(request: Request[Any], /) -> Any:
        if isinstance(request, KeepObject):
            return archive.keep(request.name, request.body)
        return perform(request)

    return perform_either


class FolderArchive:
    """An archive in a folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __repr__(self) -> str:
        return f"FolderArchive({str(self._folder)!r})"

    def keep(self, name: str, body: bytes) -> None:
        def write() -> None:
            path = self._folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_name(f".{path.name}.{os.getpid()}")
            unfinished.write_bytes(body)
            unfinished.replace(path)

        self._do(write, name)

    def read(self, name: str) -> bytes:
        def start() -> bytes:
            with (self._folder / name).open("rb") as file:
                return file.read(MOST_BYTES + 1)

        return within_bounds(name, self._do(start, name))

    def inside(self, folder: str) -> list[str]:
        def names() -> list[str]:
            found = (self._folder / folder).iterdir()
            return sorted(
                f"{folder}{path.name}/" if path.is_dir() else f"{folder}{path.name}"
                for path in found
                if not path.name.startswith(".")
            )

        try:
            return self._do(names, folder)
        except ArchiveUnavailable as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return []
            raise

    def _do(self, work: Callable[[], Result], name: str) -> Result:
        try:
            return work()
        except OSError as error:
            raise ArchiveUnavailable(f"{self._folder / name}: {error.strerror or error}") from error


def within_bounds(name: str, body: bytes) -> bytes:
    """An object, or the first bytes of it, unless it is larger than any of ours."""
    if len(body) > MOST_BYTES:
        raise ArchiveUnavailable(f"{name} has more than {MOST_BYTES:,} bytes: it is no object of an archive")
    return body


def open_archive(url: str) -> Archive:
    """The archive that is meant: a folder, or ``s3://BUCKET[/PREFIX][?region=…&endpoint_url=…]``."""
    if "://" not in url:
        if not url:
            raise ValidationError("archive", url, _SHAPE)
        return FolderArchive(Path(url))
    try:
        parts = urlsplit(url)
        given = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        raise ValidationError("archive", url, _SHAPE) from None
    if parts.scheme == "file" and not parts.netloc and not parts.query:
        return FolderArchive(Path(unquote(parts.path)))
    if parts.scheme != "s3" or not _BUCKET(parts.netloc) or not given.keys() <= {"region", "endpoint_url"}:
        raise ValidationError("archive", url, _SHAPE)
    from zae_limiter_aggregator.s3_archive import S3Archive

    return S3Archive(parts.netloc, unquote(parts.path).strip("/"), given.get("region"), given.get("endpoint_url"))
