"""An archive in a bucket of S3, in three requests: put, get, list.

Why not with boto3, which Lambda has: it is whatever version the runtime happens to have, loads in a third of a second,
and would be the only code in the package that is not ours. The signature is the one DynamoDB's calls have, and
credentials and region are found as they are found for those. The rest is one exchange of ``urllib``'s, which knows
proxies; nothing here is hot.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote
from xml.etree import ElementTree

from zae_limiter.exceptions import ValidationError
from zae_limiter.stores.dynamodb.requests import NoAnswer
from zae_limiter.stores.dynamodb.transport.protocol import Target
from zae_limiter.stores.dynamodb.transport.settings import (
    LOCAL_REGION,
    REGION_SHAPE,
    Endpoint,
    InvalidEndpoint,
    discovered_settings,
    endpoint_at,
    is_region,
)
from zae_limiter.stores.dynamodb.transport.signing import SignableRequest, signed_headers
from zae_limiter_aggregator.archives import MOST_BYTES, ArchiveUnavailable, within_bounds

if TYPE_CHECKING:
    from zae_limiter.stores.dynamodb.transport.settings import ServiceSettings

SERVICE: Final = "s3"
SECONDS: Final = 20.0
"""How long one try may take."""

TRIES: Final = 3
NAMES_AT_ONCE = 1_000
PAUSE_S: Final = 0.2
LONGEST_ERROR: Final = 64 * 1024
ENDPOINT_VARIABLES: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


class _Bucket(NamedTuple):
    """Where a bucket is, and as whom it is asked."""

    place: Endpoint
    path: str
    found: ServiceSettings


def _checked(url: str, region: str) -> Endpoint:
    try:
        return endpoint_at(url, region)
    except InvalidEndpoint:
        raise ValidationError("archive", url, "endpoint_url must be like http://host:port or https://host") from None


class S3Archive:
    """An archive in a bucket, under a prefix. Nothing is looked up before it is first used."""

    def __init__(self, bucket: str, prefix: str = "", region: str | None = None, endpoint_url: str | None = None):
        if region and not is_region(region):
            raise ValidationError("archive", region, f"the region {REGION_SHAPE}")
        if endpoint_url:
            _checked(endpoint_url, region or LOCAL_REGION)
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._region = region
        self._endpoint_url = endpoint_url

    def __repr__(self) -> str:
        return f"S3Archive({self._bucket!r})"

    def keep(self, name: str, body: bytes) -> None:
        self._ask("PUT", f"{self._prefix}{name}", body=body)

    def read(self, name: str) -> bytes:
        return self._ask("GET", f"{self._prefix}{name}")

    def inside(self, folder: str) -> list[str]:
        names: list[str] = []
        after: dict[str, str] = {}
        while True:
            query = {
                "list-type": "2",
                "delimiter": "/",
                "max-keys": str(NAMES_AT_ONCE),
                "prefix": f"{self._prefix}{folder}",
                **after,
            }
            listed = ElementTree.fromstring(self._ask("GET", "", query=query))
            on_page = listed.tag.removesuffix("ListBucketResult")
            for way in (f"{on_page}Contents/{on_page}Key", f"{on_page}CommonPrefixes/{on_page}Prefix"):
                names += [(element.text or "").removeprefix(self._prefix) for element in listed.iterfind(way)]
            token = listed.findtext(f"{on_page}NextContinuationToken")
            if not token:
                return sorted(names)
            after = {"continuation-token": token}

    @cached_property
    def _where(self) -> _Bucket:
        found = self._found()
        region = found.endpoint.region
        named = None if os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS") == "true" else _first(ENDPOINT_VARIABLES)
        url = self._endpoint_url or named
        if url:
            place = _checked(url, region)
            return _Bucket(place, f"{place.path.rstrip('/')}/{self._bucket}", found)
        host = f"s3.{region}.amazonaws.com{'.cn' if region.startswith('cn-') else ''}"
        if "." in self._bucket:  # no certificate is made for such a host
            return _Bucket(_checked(f"https://{host}", region), f"/{self._bucket}", found)
        return _Bucket(_checked(f"https://{self._bucket}.{host}", region), "", found)

    def _found(self) -> ServiceSettings:
        """Region and credentials, as they are found for DynamoDB."""
        target = Target(self._region, self._endpoint_url)
        try:
            found = discovered_settings(target, "dynamodb")
            if found is not None:
                return found
            from zae_limiter.stores.dynamodb.transport.botocore_fallback import settings_by_botocore

            return settings_by_botocore(target, "dynamodb")
        except ImportError:
            raise
        except Exception as error:
            raise ArchiveUnavailable(f"the archive {self._bucket!r} cannot be reached: {error}") from error

    @cached_property
    def _opener(self) -> Any:
        from urllib.request import HTTPSHandler, ProxyHandler, build_opener

        place, _, found = self._where
        handlers: list[Any] = [_never_elsewhere()]
        if place.is_local:
            handlers.append(ProxyHandler({}))
        if place.is_secure:
            from zae_limiter.stores.dynamodb.transport.settings import tls_context

            handlers.append(HTTPSHandler(context=tls_context(found.ca_bundle)))
        return build_opener(*handlers)

    def _ask(self, method: str, key: str, *, query: Mapping[str, str] | None = None, body: bytes = b"") -> bytes:
        tries = 0
        while True:
            tries += 1
            try:
                return self._ask_once(method, key, query or {}, body)
            except ArchiveUnavailable as error:
                if tries == TRIES or not error.ambiguous:
                    raise
            time.sleep(PAUSE_S * 2**tries)

    def _ask_once(self, method: str, key: str, query: Mapping[str, str], body: bytes) -> bytes:
        from http.client import HTTPException
        from urllib.error import HTTPError
        from urllib.request import Request

        place, path, found = self._where
        escaped = escaped_query(query)
        asked = SignableRequest(method, place.host_header, f"{path}/{quote(key)}", escaped, body)
        try:
            credentials = found.source.fetch()
        except NoAnswer as error:
            raise ArchiveUnavailable(str(error)) from error
        headers = signed_headers(asked, SERVICE, place.region, credentials, int(time.time()))
        url = f"{place.scheme}://{place.host_header}{asked.path}{f'?{escaped}' if escaped else ''}"
        sent = {**headers, "Content-Type": "application/octet-stream"} if body else headers
        request = Request(url, data=body or None, method=method, headers=dict(sent))
        try:
            with self._opener.open(request, timeout=SECONDS) as answer:
                received: bytes = answer.read(MOST_BYTES + 1)
                return within_bounds(f"{self._named}/{key}", received)
        except HTTPError as error:
            with error:
                raise self._refused(error.code, error.read(LONGEST_ERROR)) from None
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise ArchiveUnavailable(f"{self._named} did not answer: {reason}", ambiguous=True) from error

    def _refused(self, status: int, said: bytes) -> ArchiveUnavailable:
        """What a refusal says. Whether it was only a bad moment is told by ``ambiguous``."""
        words = [f"status {status}"]
        try:
            on_page = ElementTree.fromstring(said)
            words = [text for name in ("Code", "Message") if (text := on_page.findtext(name))] or words
        except ElementTree.ParseError:
            pass
        return ArchiveUnavailable(f"{self._named} refused: {': '.join(words)}", ambiguous=status >= 500)

    @property
    def _named(self) -> str:
        return f"the archive s3://{self._bucket}"


def escaped_query(query: Mapping[str, str]) -> str:
    """A query as it is sent and signed."""
    pairs = sorted((quote(name, safe=""), quote(value, safe="")) for name, value in query.items())
    return "&".join(f"{name}={value}" for name, value in pairs)


def _never_elsewhere() -> Any:
    """What is signed for one place is not sent to another."""
    from urllib.request import HTTPRedirectHandler

    class Never(HTTPRedirectHandler):
        def redirect_request(self, *words: Any) -> None:
            return None

    return Never()


def _first(names: Iterable[str]) -> str | None:
    return next((value for name in names if (value := os.environ.get(name))), None)
