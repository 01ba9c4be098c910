"""What a failed command tells the shell: one line on stderr, and an exit code that scripts can act on.

The codes are those of ``sysexits.h`` where it has one: trying again can help after 69 and 75, and never after 65,
77 and 78. The library's errors advise in terms of its methods; here the advice is a command.
"""

from __future__ import annotations

import sys

from zae_limiter import (
    AccessBlocked,
    ConfigurationError,
    EntityExistsError,
    EntityNotFoundError,
    NamespaceNotFoundError,
    RateLimiterUnavailable,
    RateLimitExceeded,
    RequestExceedsBurst,
    ValidationError,
    ZAELimiterError,
)

EXIT_ERROR = 1
EXIT_USAGE = 2  # click's own
EXIT_NEVER_FITS = 65
EXIT_UNAVAILABLE = 69
EXIT_DENIED = 75
EXIT_BLOCKED = 77
EXIT_MISCONFIGURED = 78
EXIT_INTERRUPTED = 130

MEANINGS = {
    0: "fine",
    EXIT_ERROR: "an error, on one line of stderr",
    EXIT_USAGE: "wrong usage",
    EXIT_NEVER_FITS: "more than a limit can ever hold: trying again cannot help",
    EXIT_UNAVAILABLE: "the store is unavailable: trying again may help",
    EXIT_DENIED: "denied by a limit: try again later",
    EXIT_BLOCKED: "blocked by an access switch: trying again cannot help",
    EXIT_MISCONFIGURED: "the store cannot be used as it is set up: the line on stderr says what to change",
    EXIT_INTERRUPTED: "interrupted by Ctrl-C",
}
"""Every exit code of ours, for help and documentation."""

EXIT_CODES: tuple[tuple[type[ZAELimiterError], int], ...] = (
    (RateLimiterUnavailable, EXIT_UNAVAILABLE),
    (ConfigurationError, EXIT_MISCONFIGURED),
    (RequestExceedsBurst, EXIT_NEVER_FITS),
    (RateLimitExceeded, EXIT_DENIED),
    (AccessBlocked, EXIT_BLOCKED),
    (ZAELimiterError, EXIT_ERROR),
)
"""The first kind that fits gives the code."""


ARGUMENT_NAMES = {"entity_id": "entity", "parent_id": "parent", "consume": "amount", "event_id": "event"}
"""The command line's words for arguments that the library names otherwise."""


CLI_ADVICE = {
    "deploy it, or open it once with create=True": "make it with: zae-limiter deploy --name STACK",
    "; trying again in the background": "",
    "set_access('enforce') or zae-limiter unblock lifts it": "zae-limiter unblock lifts it",
}
"""Advice of the library's errors for programs, and the same for a person at a terminal."""


def exit_code(error: ZAELimiterError) -> int:
    """The exit code for an error."""
    return next(code for kind, code in EXIT_CODES if isinstance(error, kind))


def message_for(error: ZAELimiterError) -> str:
    """One line: what went wrong, and which command may help."""
    match error:
        case EntityNotFoundError(entity_id=name):
            words = f"no entity {name!r} in this namespace; create it with: zae-limiter entity create {name}"
        case EntityExistsError(entity_id=name):
            words = f"entity {name!r} exists already; change it with: zae-limiter entity update {name}"
        case NamespaceNotFoundError(namespace=name, deleted=True):
            words = f"namespace {name!r} is deleted; bring it back with: zae-limiter namespace recover {name}"
        case NamespaceNotFoundError(namespace=name):
            words = f"no namespace {name!r}; register it with: zae-limiter namespace register {name}"
        case ValidationError(field="limits", value=None, reason=reason):
            words = reason.replace("limits= with the call", "-l with the command")
        case ValidationError(field=field, value=value, reason=reason):
            words = str(ValidationError(ARGUMENT_NAMES.get(field, field), value, reason))
        case _:
            words = str(error)
    for advice, typed in CLI_ADVICE.items():
        words = words.replace(advice, typed)
    return " ".join(words.split())


def print_error(words: str) -> None:
    """Print one line to stderr; characters that would control the terminal are replaced."""
    line = "".join(letter if letter.isprintable() else "�" for letter in " ".join(words.split()))
    encoding = sys.stderr.encoding or "utf-8"
    print("Error:", line.encode(encoding, "replace").decode(encoding), file=sys.stderr)


def report(error: ZAELimiterError) -> int:
    """Print what went wrong in one line; returns the exit code."""
    print_error(message_for(error))
    return exit_code(error)


def interrupt_exit_code(error: BaseException) -> int:
    """The exit code of an interrupted command: that of the signal, or 1 if a question was not answered."""
    cause = error if isinstance(error, KeyboardInterrupt) else error.__cause__ or error.__context__
    if not isinstance(cause, KeyboardInterrupt):
        return EXIT_ERROR
    code: int = getattr(cause, "exit_code", EXIT_INTERRUPTED)
    return code
