"""The entry point of ``zae-limiter``, and the one place where errors become messages and exit codes.

Nothing is imported before it is needed: what the command line needs comes with an extra that may be missing, and
``--version`` should answer at once.
"""

from __future__ import annotations

import os
import sys

from zae_limiter import ZAELimiterError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from zae_limiter.cli.session import Dependencies

CLI_EXTRA = ("click", "rich", "yaml")
"""What the extra ``cli`` brings."""


def main(words: Sequence[str] | None = None, dependencies: Dependencies | None = None) -> int:
    """Run the command line, by default with the arguments of the process; returns the exit code."""
    try:
        code = _run(words, dependencies)
        sys.stdout.flush()
        return code
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in CLI_EXTRA:
            raise
        from zae_limiter.extras import install_command

        print(f"the command line needs: {install_command('cli')}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as interrupt:
        from zae_limiter.cli.error_messages import interrupt_exit_code

        return interrupt_exit_code(interrupt)
    except ZAELimiterError as error:
        from zae_limiter.cli.error_messages import report

        return report(error)
    except OSError as error:
        return _could_not_write(error)


def _run(words: Sequence[str] | None, dependencies: Dependencies | None) -> int:
    from click import Abort, ClickException

    from zae_limiter.cli.group import cli

    try:
        code = cli.main(words, prog_name="zae-limiter", standalone_mode=False, obj=dependencies)
    except ClickException as error:
        error.show()
        return error.exit_code
    except Abort as error:
        from zae_limiter.cli.error_messages import interrupt_exit_code

        return interrupt_exit_code(error)
    return code if isinstance(code, int) else 0


def _could_not_write(error: OSError) -> int:
    """The disk is full, or the reader of a pipe has had enough, which is no failure. The rest is discarded."""
    from contextlib import suppress

    from zae_limiter.cli.error_messages import EXIT_ERROR, print_error

    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return 0
    print_error(str(error))
    return EXIT_ERROR
