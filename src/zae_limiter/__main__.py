"""``python -m zae_limiter``: the command line."""

from __future__ import annotations

import sys

from zae_limiter.cli.entry import main

if __name__ == "__main__":
    sys.exit(main())
