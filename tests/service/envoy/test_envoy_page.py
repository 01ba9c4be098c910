"""The guide has the configuration that the tests run, and names what there is."""

from __future__ import annotations

import re
from pathlib import Path

from zae_limiter.service.envoy.responses import LEASE_HEADER

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "envoy.md").read_text(encoding="utf-8")
CONFIG = (ROOT / "examples" / "envoy.yaml").read_text(encoding="utf-8")


def test_the_configuration_on_the_page_is_the_one_that_is_run() -> None:
    (shown,) = re.findall(r"^```yaml\n(# An Envoy that.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert shown == CONFIG


def test_the_page_and_the_configuration_name_the_header_of_leases() -> None:
    assert f"- remove: {LEASE_HEADER}" in CONFIG
    assert f"`{LEASE_HEADER}`" in PAGE
