"""What a failed command tells the shell: one line on stderr, and an exit code that scripts can act on.

0 is fine, 1 an error, 2 wrong usage (click's own), 69 an unavailable store (``EX_UNAVAILABLE``) and 75 a
denial (``EX_TEMPFAIL``: try again later).
"""

from __future__ import annotations

import sys

from zae_limiter.exceptions import RateLimiterUnavailable, RateLimitExceeded, ZAELimiterError

EXIT_CODES: tuple[tuple[type[ZAELimiterError], int], ...] = (
    (RateLimiterUnavailable, 69),
    (RateLimitExceeded, 75),
    (ZAELimiterError, 1),
)
"""The first kind that fits gives the code."""


def exit_code(error: ZAELimiterError) -> int:
    """What the shell is told about an error."""
    return next(code for kind, code in EXIT_CODES if isinstance(error, kind))


def report(error: ZAELimiterError) -> int:
    """Say what went wrong in one line; the exit code."""
    print("Error:", " ".join(str(error).split()), file=sys.stderr)
    return exit_code(error)
