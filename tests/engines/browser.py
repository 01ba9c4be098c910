"""A browser for tests of the dashboard: the system's Chromium, else the one that ``make setup`` installs."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / ".engines" / "browser"
SYSTEM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FIND = "import chromium from '@sparticuz/chromium'; console.log(await chromium.executablePath())"
ARGUMENTS = ("--no-sandbox", "--headless=shell", "--disable-gpu", "--lang=en-US", "--force-color-profile=srgb")
ENGLISH = {"LANG": "en_US.UTF-8", "LC_ALL": "en_US.UTF-8", "LANGUAGE": "en_US", "TZ": "UTC"}

AXE = FOLDER / "node_modules" / "axe-core" / "axe.min.js"


def executable() -> str | None:
    """The program, if there is one; the installed one is unpacked the first time."""
    found = next((path for name in SYSTEM if (path := shutil.which(name))), None)
    if found is not None:
        return found
    if not (FOLDER / "node_modules" / "@sparticuz").is_dir() or shutil.which("node") is None:
        return None
    told = subprocess.run(
        ["node", "--input-type=module", "-e", FIND],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return told.stdout.strip() or None


def what_is_missing() -> str | None:
    """Why no browser can be had, if none can."""
    if executable() is None:
        return "there is no browser: make setup installs one with npm, on Linux"
    return None if AXE.is_file() else "axe-core is not installed: make setup"


@contextmanager
def started() -> Iterator[Any]:
    """A browser, as Playwright drives it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=executable(), args=list(ARGUMENTS), env={**os.environ, **ENGLISH}
        )
        try:
            yield browser
        finally:
            browser.close()
