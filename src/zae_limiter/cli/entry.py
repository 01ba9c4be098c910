"""Where the ``zae-limiter`` command begins.

Nothing is imported before it is needed: what the command line needs comes with an extra that may be missing,
and ``--version`` has to answer before anybody looks up.
"""

from __future__ import annotations

import sys

from zae_limiter.exceptions import ZAELimiterError

CLI_EXTRA = ("click", "rich")
"""What ``pip install 'zae-limiter[cli]'`` brings."""


def main() -> int:
    """Run the command line; the exit code."""
    try:
        from zae_limiter.cli.group import cli

        cli(prog_name="zae-limiter")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in CLI_EXTRA:
            raise
        print("the command line needs: pip install 'zae-limiter[cli]'", file=sys.stderr)
        return 1
    except ZAELimiterError as error:
        from zae_limiter.cli.failures import report

        return report(error)
    return 0
