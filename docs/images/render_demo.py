"""Records one run of ``zae-limiter demo`` as ``demo.svg``: a moment in the middle, then the verdict.

Run it from anywhere with the Python that has the extra ``cli`` installed::

    python docs/images/render_demo.py
"""

from __future__ import annotations

import asyncio
from io import StringIO
from pathlib import Path

from rich.console import Console, Group
from rich.text import Text

from zae_limiter.cli.demo.proof import prove
from zae_limiter.cli.demo.run import Settings, demo_namespace, embedded_store, prepare, watch
from zae_limiter.cli.demo.scenario import read_levels
from zae_limiter.cli.demo.screen import Moment, frame
from zae_limiter.cli.demo.summary import Outcome, summary
from zae_limiter.running.clocks import machine_clock

WIDTH = 88
PICTURE = Path(__file__).with_name("demo.svg")

TEMPLATE = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>zae-limiter demo</title>
<style>
.{unique_id}-matrix {{ font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace;
font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>{lines}</defs>
<rect fill="#1b1e24" x="1" y="1" width="{width}" height="{height}" rx="10"/>
<g fill="#3a3f4b"><circle cx="24" cy="22" r="7"/><circle cx="46" cy="22" r="7"/><circle cx="68" cy="22" r="7"/></g>
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""
"""A plainer frame than rich's own, and no fonts from elsewhere."""


async def run_demo(settings: Settings) -> tuple[str, Moment, Outcome]:
    """One run: its title, its richest moment, and how it ended."""
    moments: list[Moment] = []
    with embedded_store() as url:
        async with demo_namespace(url) as limiter:
            demo = await prepare(url, settings, limiter)
            try:
                await demo.workers.gather()
                started_ms = machine_clock()
                demo.workers.begin()
                await watch(demo, moments.append)
                tally = await demo.workers.finish()
                readings = await read_levels(limiter, demo.places)
                elapsed_ms = machine_clock() - started_ms
            finally:
                demo.workers.dismiss()
    outcome = Outcome(elapsed_ms, False, tally, {}, prove(readings, tally, elapsed_ms))
    return demo.title, max(moments, key=richness), outcome


def richness(moment: Moment) -> tuple[int, float]:
    """How much there is to see: limits in debt, then the time."""
    levels = [level.available for reading in moment.readings for level in reading.status.limits]
    return min(sum(level < 0 for level in levels), 2), moment.elapsed


def main() -> None:
    """Record the run and write the picture."""
    title, moment, outcome = asyncio.run(run_demo(Settings(url=None, seconds=10, seed=7, workers=4)))
    assert outcome.proven
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True, highlight=False)
    console.print("$ zae-limiter demo", style="dim")
    console.print(title, style="bold")
    console.print(frame(moment, WIDTH))
    console.print(Text())
    report = summary(outcome, WIDTH)
    assert isinstance(report, Group)
    # The claims and the verdict: what follows the last table.
    lines = list(report.renderables)
    last_table = max(place for place, line in enumerate(lines) if not isinstance(line, Text))
    for line in lines[last_table + 2 :]:
        console.print(line)
    PICTURE.write_text(console.export_svg(code_format=TEMPLATE, unique_id="demo"), encoding="utf-8")
    print(f"{PICTURE.name}: {PICTURE.stat().st_size // 1024} KB")


if __name__ == "__main__":
    main()
