"""Which certificates are believed: those that botocore would believe."""

from __future__ import annotations

import os
import ssl
from functools import lru_cache
from importlib.util import find_spec

BUNDLES = (("certifi", "cacert.pem"), ("botocore", "cacert.pem"))
"""Packages that bring certificates along, in botocore's order. Looking for one does not load it."""


@lru_cache(maxsize=8)
def trusting(ca_bundle: str | None) -> ssl.SSLContext:
    """How to connect securely: trusting those in ``ca_bundle`` (a file or folder), or the usual authorities."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    bundle = ca_bundle or _usual_bundle()
    if bundle is None:
        context.load_default_certs()
        return context
    try:
        if os.path.isdir(bundle):
            context.load_verify_locations(capath=bundle)
        else:
            context.load_verify_locations(cafile=bundle)
    except OSError as error:
        raise OSError(f"the certificates in {bundle} cannot be read: {error}") from error
    return context


def _usual_bundle() -> str | None:
    for package, name in BUNDLES:
        spec = find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            path = os.path.join(folder, name)
            if os.path.exists(path):
                return path
    return None
