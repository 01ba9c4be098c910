"""Draws what the commands of ``docs/cli.md`` show, as SVG files beside this one.

Run it from anywhere with the Python that has the extra ``cli`` installed::

    python docs/images/render_cli.py

Every picture is what the command itself prints on a terminal of 80 and of 120 columns, dark and light, in a world
whose clock stands still: rendering twice gives the same files. ``--all FOLDER`` draws many more commands, to look at.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, SVG_EXPORT_THEME, TerminalTheme
from rich.text import Text

from zae_limiter.cli.entry import main
from zae_limiter.cli.session import Dependencies
from zae_limiter.limiter.sync_limiter import SyncRateLimiter
from zae_limiter.models.limit import Limit
from zae_limiter.repository.sync_repository import SyncRepository
from zae_limiter.stores.sqlite.store import SqliteStore
from zae_limiter.testing import FakeClock

HERE = Path(__file__).parent
ERASE_LINE = "\x1b[2K"

DOCUMENTED = {
    "cli-status": "status key-web",
    "cli-top": "top",
    "cli-watch": "watch key-web key-app --interval 2",
    "cli-usage-plot": "usage plot --entity key-web --resource gpt-4 --limit-name tpm",
    "cli-limits-plan": "limits plan -f limits.yaml",
}
"""The pictures on the page, and the commands that draw them."""

WIDTHS = (80, 120)

APPLIED = """\
manifest: platform
system: {limits: [rpm:100, tpm:10_000]}
resources:
  gpt-4: [rpm:60, tpm:20_000:30_000]
  claude: [rpm:20]
entities:
  acme: {name: Acme Inc., limits: [rpm:1_000, tpm:150_000]}
"""
CHANGED = """\
manifest: platform
system: {limits: [rpm:100, tpm:10_000], on_unavailable: allow}
resources:
  gpt-4: [rpm:60, tpm:25_000:40_000]
entities:
  acme: {name: Acme Inc., limits: [rpm:1_000, tpm:150_000]}
  partners:
    parent: acme
    cascade: true
    limits: {gpt-4: [rpm:10, tpm:5_000]}
"""
"""A manifest as it was applied, and as it is now."""

OTHERS = {
    "explain": "explain key-web gpt-4",
    "tree": "entity tree",
    "entity-show": "entity show key-web",
    "entity-list": "entity list",
    "limits": "resource list",
    "capacity": "resource capacity gpt-4",
    "acquire": "acquire key-app gpt-4 rpm=1 tpm=100",
    "available": "available key-noisy gpt-4 rpm=1 tpm=5000",
    "audit": "audit list",
    "usage-list": "usage list --entity key-web --window daily",
    "usage-summary": "usage summary --resource gpt-4",
    "usage-lines": "usage plot --entity key-web --resource gpt-4 --style lines",
    "usage-days": "usage plot --resource gpt-4 --window daily",
    "namespaces": "namespace list",
}

TEMPLATE = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>TITLE</title>
<style>
.{unique_id}-matrix {{ font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace;
font-size: 21px; line-height: {line_height}px; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>{lines}</defs>
<rect fill="PAPER" x="1" y="1" width="{width}" height="{height}" rx="10"/>
<g fill="#8a8f9b"><circle cx="24" cy="22" r="7"/><circle cx="46" cy="22" r="7"/><circle cx="68" cy="22" r="7"/></g>
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""
"""A plainer frame than rich's own, no fonts from elsewhere, and letters large enough that bars have no gaps."""


class Look(NamedTuple):
    """A kind of terminal."""

    name: str
    theme: TerminalTheme
    output: str


DARK = Look("dark", SVG_EXPORT_THEME, "#1b1e24")
LIGHT = Look("light", DEFAULT_TERMINAL_THEME, "#ffffff")


@contextmanager
def world() -> Iterator[Dependencies]:
    """An organisation with a busy day and a half behind it, and a changed manifest in the current folder."""
    clock = FakeClock()
    with TemporaryDirectory(prefix="zae-limiter-docs-") as folder, chdir(folder):

        def open_store(url: str | None) -> SqliteStore:
            return SqliteStore("limits.db")

        with SyncRepository(open_store(None), clock=clock) as repository:
            populate(SyncRateLimiter(repository), clock)
            Path("limits.yaml").write_text(APPLIED)
            with redirect_stdout(StringIO()):
                main(("limits", "apply", "-f", "limits.yaml", "--yes"), Dependencies(open_store, clock))
            Path("limits.yaml").write_text(CHANGED)
            yield Dependencies(open_store, clock)


class BusyClock:
    """A clock that moves on after the first look of ``watch`` has read it, with calls in the meantime."""

    def __init__(self, dependencies: Dependencies, entities: int) -> None:
        self._dependencies = dependencies
        self._left = 1 + entities  # the moment of the look, and of each status

    def __call__(self) -> int:
        clock = self._dependencies.clock
        if self._left == 0:
            assert isinstance(clock, FakeClock)
            with SyncRepository(self._dependencies.open_store(None), clock=clock) as repository:
                limiter = SyncRateLimiter(repository)
                for key, tpm in (("key-web", 1_300), ("key-app", 900)):
                    with limiter.acquire(key, "gpt-4", {"rpm": 4, "tpm": tpm}):
                        pass
            clock.advance(2)
        self._left -= 1
        return clock()


def populate(limiter: SyncRateLimiter, clock: FakeClock) -> None:
    """Entities, limits and usage. The last moments leave one key in debt."""
    limiter.create_entity("acme", name="Acme Inc.", principal="ann")
    limiter.create_entity("search", name="Search team", parent_id="acme", cascade=True, principal="ann")
    limiter.create_entity("ads", parent_id="acme", cascade=True, principal="ann")
    limiter.create_entity("key-web", parent_id="search", cascade=True, metadata={"owner": "bea"}, principal="ann")
    limiter.create_entity("key-app", parent_id="search", cascade=True, principal="ann")
    limiter.create_entity("key-noisy", parent_id="ads", cascade=False, principal="ann")
    limiter.set_system_defaults([Limit.per_minute("rpm", 100), Limit.per_minute("tpm", 10_000)], principal="ann")
    limiter.set_resource_defaults(
        "gpt-4", [Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 20_000, burst=30_000)], principal="ann"
    )
    limiter.set_limits("acme", [Limit.per_minute("rpm", 1_000), Limit.per_minute("tpm", 150_000)], principal="ann")
    limiter.set_limits(
        "key-web",
        [Limit.per_minute("rpm", 50), Limit.per_minute("tpm", 12_000), Limit.per_day("tpd", 2_000_000)],
        resource="gpt-4",
        principal="bea",
    )
    for hour in range(36):
        busy = 2 + math.sin((hour - 9) / 24 * 2 * math.pi) + 0.6 * math.sin(hour * 1.7)
        for _ in range(max(round(busy * 3), 0)):
            with limiter.acquire("key-web", "gpt-4", {"rpm": 1, "tpm": 900 + 70 * (hour % 7)}):
                clock.advance(60)
        with limiter.acquire("key-noisy", "gpt-4", {"rpm": 5, "tpm": 4_000}):
            pass
        clock.advance(3_600 - (clock() - clock.start) // 1000 % 3_600)
    clock.advance(600)
    for key, resource, rpm, tpm in (
        ("key-web", "gpt-4", 18, 7_900),
        ("key-web", "embeddings", 60, 2_500),
        ("key-app", "gpt-4", 9, 4_200),
        ("key-noisy", "gpt-4", 45, 28_000),
    ):
        with limiter.acquire(key, resource, {"rpm": rpm, "tpm": tpm}) as lease:
            if resource == "embeddings":
                lease.adjust(tpm=10_800)
    clock.advance(4)


def recorded(command: str, dependencies: Dependencies, width: int) -> Text:
    """What a command prints on a terminal of this width; of what it draws again and again, the last."""
    words = command.split()
    if words[0] == "watch":
        dependencies = dependencies._replace(clock=BusyClock(dependencies, entities=2))
        words = [*words[:-2], "--interval", "0.05", "--count", "2"]
    output = StringIO()
    before = dict(os.environ)
    os.environ.update(COLUMNS=str(width), FORCE_COLOR="1", TERM="xterm-256color")
    os.environ.pop("NO_COLOR", None)
    try:
        with redirect_stdout(output):
            main(words, dependencies)
    finally:
        os.environ.clear()
        os.environ.update(before)
    last = output.getvalue().rpartition(ERASE_LINE)[2].replace("every 0.05 s", "every 2 s")
    return Text.from_ansi(last.rstrip())


def picture(command: str, dependencies: Dependencies, width: int, look: Look, name: str) -> str:
    """The SVG of a command and what it prints."""
    console = Console(record=True, width=width, file=StringIO(), force_terminal=True, highlight=False)
    console.print(Text.assemble("$ ", ("zae-limiter ", "bold"), (command, "bold")))
    console.print(recorded(command, dependencies, width))
    template = TEMPLATE.replace("TITLE", f"zae-limiter {command}").replace("PAPER", look.output)
    return console.export_svg(theme=look.theme, code_format=template, unique_id=name)


def draw(folder: Path, commands: Mapping[str, str]) -> None:
    """Commands at both widths, dark and light."""
    for name, command in commands.items():
        for width in WIDTHS:
            for look in (DARK, LIGHT):
                with world() as dependencies:
                    drawn = picture(command, dependencies, width, look, name)
                (folder / f"{name}-{width}-{look.name}.svg").write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--all"]:
        draw(Path(sys.argv[2]).resolve(), {**DOCUMENTED, **OTHERS})
    else:
        draw(HERE.resolve(), DOCUMENTED)
