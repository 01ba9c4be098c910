"""What the fast path of the memory store says about itself, read from its instructions, on every Python it runs on.

CPython hands over signals where a function is called or resumed, and where it jumps backwards. What belongs together
must be written with none of these in between: a bucket's new baseline, and a draw with its receipt.
"""

from __future__ import annotations

import dis
from itertools import chain
from typing import Any

import pytest

from zae_limiter.stores.memory.fast_path import MOST_LIMITS, shaped_path

NEVER_INTERRUPTED = (
    "BINARY_OP",
    "BUILD_LIST",
    "BUILD_TUPLE",
    "CALL_INTRINSIC_1",
    "COMPARE_OP",
    "COPY",
    "EXTENDED_ARG",
    "LIST_",
    "LOAD_",
    "NOP",
    "POP_JUMP_",
    "STORE_",
    "SWAP",
)
"""How instructions begin that only move values, jump forwards, or work on plain integers.

A long tuple is made from a list, in the end by an intrinsic: a function of the interpreter's own, after which it looks
for no signals.
"""

SHAPES = {
    "one limit": (("rpm",),),
    "two limits": (("rpm", "tpm"),),
    "three legs": (("rpm", "tpm"), ("tpm", "tpd"), ("rpd",)),
    "many limits": (tuple(f"l{number}" for number in range(MOST_LIMITS)),),
}


def written_at_a_stretch(shape: tuple[tuple[str, ...], ...]) -> list[list[str]]:
    """The attributes that are written with no chance for a signal in between, stretch by stretch."""
    draw: Any = shaped_path(shape).draw
    stretches: list[list[str]] = [[]]
    for instruction in dis.get_instructions(draw):
        name = instruction.opname
        if name == "STORE_ATTR":
            stretches[-1].append(instruction.argval)
        elif not name.startswith(NEVER_INTERRUPTED) or "BACKWARD" in name:
            stretches.append([])
    return [stretch for stretch in stretches if stretch]


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_what_belongs_together_is_written_before_a_signal_can_come(shape: tuple[tuple[str, ...], ...]) -> None:
    *baselines, draw = written_at_a_stretch(shape)
    assert baselines == [[*["tk", "at_rf"] * len(limits), "rf"] for limits in shape]
    paying = [*chain.from_iterable(shape)]
    events = [*["events"] * len(shape), *["cascaded_events"] * (len(shape) - 1)]
    assert draw == [*["tk", "tc"] * len(paying), *events, "_grant"]
