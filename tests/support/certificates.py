"""Certificates for servers on this machine, made by openssl when a test asks."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")


class Certificate(NamedTuple):
    """A certificate that vouches for itself."""

    path: Path
    key: Path

    def serving(self) -> ssl.SSLContext:
        """How a server shows it."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path, self.key)
        return context


def certificate(folder: Path, names: str = "IP:127.0.0.1,DNS:localhost") -> Certificate:
    made = Certificate(folder / "certificate.pem", folder / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(made.key), "-out", str(made.path), "-days", "2", "-subj", "/CN=test"]
    command += ["-addext", f"subjectAltName={names}"]
    subprocess.run(command, check=True, capture_output=True, timeout=30)
    return made
