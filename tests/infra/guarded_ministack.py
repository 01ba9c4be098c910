"""A MiniStack that outlives the process that starts it, as the local cloud's does, but not the test run."""

from __future__ import annotations

import os
from pathlib import Path

from engines.servers import ROOT

MINISTACK = ROOT / "ministack" / "bin" / "ministack"

_SCRIPT = """#!/bin/sh
(while kill -0 {tests} && kill -0 $$; do sleep 0.5; done; kill $$) 2> /dev/null > /dev/null &
exec {program}
"""


def guarded_ministack(folder: Path) -> str:
    """A command that becomes MiniStack, and ends with this process at the latest."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "guarded-ministack"
    script.write_text(_SCRIPT.format(tests=os.getpid(), program=MINISTACK), encoding="utf-8")
    script.chmod(0o755)
    return str(script)
