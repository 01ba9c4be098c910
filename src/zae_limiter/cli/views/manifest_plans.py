"""Plans and drift of manifests, with the marks of a diff: + is added, ~ changed, - removed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from zae_limiter.cli.output.console import shown
from zae_limiter.cli.views.limits import replaced_lines
from zae_limiter.manifests.change_plan import Change, ChangePlan
from zae_limiter.manifests.description import MARKS, details, note_on, summary
from zae_limiter.manifests.drift import Difference, Drift
from zae_limiter.manifests.model import Manifest

COLOURS = {"+": "green", "~": "yellow", "-": "red", "?": "cyan", "!": "bold red"}

DRIFT_MARKS = {
    Difference.MISSING: "-",
    Difference.CHANGED: "~",
    Difference.LEFT_OVER: "+",
    Difference.UNMANAGED: "?",
}


def change_plan_picture(change_plan: ChangePlan) -> Text:
    """A plan."""
    return Text("\n").join(_change_plan_lines(change_plan))


def drift_picture(manifest: Manifest, found: Sequence[Drift]) -> Text:
    """Drift: - is what the manifest says, + what exists."""
    return Text("\n").join(_drift_lines(manifest, found))


def _change_plan_lines(change_plan: ChangePlan) -> Iterator[Text]:
    manifest = change_plan.manifest
    if not change_plan.record.finished:
        by = f" by {change_plan.record.by}" if change_plan.record.by else ""
        yield _line("!", f"The last run{by} did not finish; apply again to finish it.")
    for change in change_plan.changes:
        yield from _change_lines(change)
    for thing in change_plan.adopted:
        yield _line("=", thing.label, "as it is, not managed so far")
    for thing in change_plan.released:
        yield _line("=", thing.label, "no longer managed, stays as it is")
    for conflict in change_plan.conflicts:
        where = f"{manifest.source}:{conflict.place.line}: " if conflict.place else ""
        yield _line("!", f"{where}{conflict.message}")
    yield _line("", summary(change_plan))


def _change_lines(change: Change) -> Iterator[Text]:
    yield _line(MARKS[change.action], change.thing.label, note_on(change))
    for detail in details(change.before, change.after):
        values = " → ".join(value for value in (detail.before, detail.after) if value is not None)
        yield _line(detail.mark, f"{detail.label} {values}".lstrip(), depth=1)
    for line in replaced_lines(change.replaced, merge_hint=False):
        yield _line("!", line.plain, depth=1)


def _drift_lines(manifest: Manifest, found: Sequence[Drift]) -> Iterator[Text]:
    for item in found:
        yield _line(DRIFT_MARKS[item.difference], item.thing.label, _cause(item, manifest))
        for detail in details(item.says, item.exists):
            for mark, value in (("-", detail.before), ("+", detail.after)):
                if value is not None:
                    yield _line(mark, f"{detail.label} {value}".lstrip(), depth=1)
    words = f"{len(found)} not as {manifest.source} says." if found else f"Everything is as {manifest.source} says."
    yield _line("", words)


def _cause(item: Drift, manifest: Manifest) -> str:
    """Why it differs, as far as the audit trail knows."""
    if item.difference is Difference.UNMANAGED:
        return "no manifest manages it"
    if item.at is None or (item.by or "").split(":")[:2] == ["manifest", manifest.name]:
        return f"{item.difference}; the manifest was not applied since it was edited"
    return f"{item.difference}; by {item.by or 'an unnamed principal'} at {item.at:%Y-%m-%d %H:%M} UTC"


def _line(mark: str, words: str, remark: str | None = None, depth: int = 0) -> Text:
    """One line: a mark in its colour, what it is about, and perhaps a remark."""
    opening = f"{'    ' * depth}{mark} " if mark else ""
    text = Text(opening + shown(words), style=COLOURS.get(mark, ""))
    if remark:
        text.append(f"  ({shown(remark)})", style="dim")
    return text
