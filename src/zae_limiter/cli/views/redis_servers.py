"""What ``check`` says of Redis servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from zae_limiter.cli.output.text_tables import Column, table

if TYPE_CHECKING:
    from zae_limiter.cli.output.console import Output
    from zae_limiter.infra.redis_check import ServerReport

COLUMNS = (Column("server"), Column(""), Column("there"))


def servers_document(reports: Sequence[ServerReport]) -> dict[str, Any]:
    """For programs."""
    return {
        "servers": [
            {
                "server": report.where,
                "findings": [finding._asdict() for finding in report.findings],
                "advice": list(report.advice),
            }
            for report in reports
        ]
    }


def servers_picture(output: Output, reports: Sequence[ServerReport]) -> RenderableType:
    """For people."""
    rows = [(report.where, finding.what, finding.state) for report in reports for finding in report.findings]
    advice = [Text(words, style="yellow") for report in reports for words in report.advice]
    fit = Text("fit to keep limits", style="green")
    return Group(table(output, COLUMNS, rows), Text(), *(advice or [fit]))
