"""What the demo shows, without time or a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console, RenderableType

from zae_limiter import Limit
from zae_limiter.cli.demo.proof import Account
from zae_limiter.cli.demo.scenario import RESOURCE_OF, BucketId, Reading, places
from zae_limiter.cli.demo.screen import Moment, frame
from zae_limiter.cli.demo.summary import SUMMARY_COLUMNS, Outcome, summary
from zae_limiter.cli.demo.tally import Ending, Tally
from zae_limiter.cli.output.bars import level_bar, stroke, usage_bar
from zae_limiter.models.status import BucketStatus, LimitLevel

RPM, TPM = Limit.per_minute("rpm", 900), Limit.per_minute("tpm", 900_000, burst=100_000)
WEB = BucketId("key-web", "gpt-4")


def lines(picture: RenderableType, width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(picture)
    return [line.rstrip() for line in console.export_text().splitlines()]


def moment(level: int, *, over: bool = False) -> Moment:
    tally = Tally()
    tally.refusals[WEB] = 1_234
    tally.endings[WEB, Ending.DENIED] = 1_234
    readings = [
        Reading(
            place,
            BucketStatus(
                *place.bucket,
                (LimitLevel("rpm", RPM, 900, 5, 0.0), LimitLevel("tpm", TPM, level, 5, 0.0)),
                12_345,
            ),
        )
        for place in places()
    ]
    return Moment(3.2, 10, readings, tally, over)


def account(**changes: int) -> Account:
    amounts = {"granted": 123_456, "over": 23_456, "used": 146_912, "left": -12_345, "refill": 123_456} | changes
    return Account(WEB, TPM, "entity_default", **amounts)


def outcome(*accounts: Account) -> Outcome:
    tally = Tally()
    tally.endings[WEB, Ending.DENIED] = 12_345
    usage = {BucketId(*item): {"rpm": 1_234, "tpm": 123_456} for item in RESOURCE_OF.items()}
    return Outcome(10_034, False, tally, usage, list(accounts))


@pytest.mark.parametrize(
    ("part", "drawn"), [(0, ""), (0.001, "╸"), (0.5, "━━"), (0.6, "━━╸"), (1, "━━━━"), (7, "━━━━")]
)
def test_a_stroke_is_as_long_as_its_part(part: float, drawn: str) -> None:
    assert stroke(part, 4) == drawn


@pytest.mark.parametrize(
    ("level", "drawn", "colour"),
    [
        (100, "━━━━━━━━━━", "green"),
        (50, "━━━━━─────", "green"),
        (49, "━━━━━─────", "yellow"),
        (19, "━━────────", "red"),
        (1, "╸─────────", "red"),
        (-1, "─────────◀", "bold bright_red"),
        (-50, "─────◀━━━━", "bold bright_red"),
        (-999, "◀━━━━━━━━━", "bold bright_red"),
    ],
)
def test_a_level_has_the_width_and_colour_of_what_is_left(level: int, drawn: str, colour: str) -> None:
    bar = level_bar(level, 100, 10)
    assert bar.plain == drawn
    assert colour in [span.style for span in bar.spans]


def test_an_empty_bucket_is_red_all_over() -> None:
    bar = level_bar(0, 100, 10)
    assert (bar.plain, bar.style) == ("──────────", "red")


def test_usage_without_any_is_an_empty_bar() -> None:
    assert usage_bar(0, 0, 10, "cyan").plain == ""


@pytest.mark.parametrize("level", [100_000, 1, -99_999])
def test_the_picture_fits_80_by_24(level: int) -> None:
    drawn = lines(frame(moment(level), 80), 80)
    assert len(drawn) <= 22  # the title above, the cursor below
    assert max(map(len, drawn)) <= 80
    assert not [line for line in drawn if "…" in line]


def test_the_picture_grows_with_the_terminal() -> None:
    assert max(map(len, lines(frame(moment(5), 120), 120))) > 100


def test_debt_is_shown_as_a_negative_level_and_as_debt() -> None:
    row = next(line for line in lines(frame(moment(-4_321), 80), 80) if "key-web" in line)
    assert row.split()[-4:] == ["-4,321", "12,345", "1,234", "4,321"]


def test_only_a_running_show_can_be_interrupted() -> None:
    assert any("Ctrl-C" in line for line in lines(frame(moment(1), 80), 80))
    assert not any("Ctrl-C" in line for line in lines(frame(moment(1, over=True), 80), 80))


@pytest.mark.parametrize("width", [SUMMARY_COLUMNS, 120])
def test_the_summary_wraps_nothing_and_cuts_no_number(width: int) -> None:
    drawn = lines(summary(outcome(account()), width), width)
    assert len(drawn) == len(lines(summary(outcome(account()), width), 200)), "something was wrapped"
    assert max(map(len, drawn)) <= width
    assert not [line for line in drawn if "…" in line]


def test_a_proof_that_holds_says_so() -> None:
    result = outcome(account())
    drawn = lines(summary(result, 80), 80)
    assert result.proven
    assert drawn[-1] == "Proven: every limit held and every counter is exact."
    assert not any("✗" in line for line in drawn)


def test_a_broken_claim_is_named_with_its_account() -> None:
    result = outcome(account(), account(used=146_913))
    drawn = lines(summary(result, 80), 80)
    assert not result.proven
    assert drawn[-1] == "NOT PROVEN: see the broken claims above."
    assert any("✓✗✓" in line for line in drawn)
    assert any(line.startswith("✗  1/2 used = granted + over") for line in drawn)
    assert "  broken: tpm of key-web on gpt-4" in drawn
