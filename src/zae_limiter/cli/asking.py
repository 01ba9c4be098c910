"""Questions before something is lost."""

from __future__ import annotations

import sys

import click


def confirm(question: str, yes: bool) -> None:
    """Go on if ``--yes`` was given or the answer is yes. Where nobody can answer, it is wrong usage."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("this asks before it acts, and there is no terminal to ask on; add --yes")
    click.confirm(question, abort=True, err=True)
