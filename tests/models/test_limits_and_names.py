"""Which limits, names and amounts are valid: tables of what is refused, and what the refusal says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.choices import OnError, OnUnavailable, WindowType, check_choice
from zae_limiter.models.limit import MAX_PERIOD_SECONDS, MAX_TOKENS, Limit, check_limits
from zae_limiter.naming import (
    check_amount,
    check_config_resource,
    check_delta,
    check_entity_id,
    check_limit_name,
    check_namespace,
    check_principal,
    check_resource,
    check_stack_name,
)

Check = Callable[..., object]

TEXTS: list[Check] = [check_entity_id, check_principal, check_resource, check_config_resource]
WORDS: list[Check] = [check_namespace, check_limit_name, check_stack_name]
EVERY_NAME: list[Check] = [*TEXTS, *WORDS]

TEXT_NAMES = [
    "auth0|1",
    "user/1",
    "ann+test@x.com",
    "::1",
    "jürgen",
    "٣",
    "a b",
    "-a",
    ".a",
    "/a",
    "a*",
    "a,b",
    "日本",
]
TEXT_NAMES += ["a%", "a\\b", "\N{ROCKET}", "e\N{COMBINING ACUTE ACCENT}"]

LONGEST: list[tuple[Check, int]] = [
    (check_entity_id, 256),
    (check_principal, 256),
    (check_namespace, 256),
    (check_resource, 128),
    (check_config_resource, 128),
    (check_limit_name, 64),
    (check_stack_name, 55),
]

VALID_NAMES: list[tuple[Check, list[str]]] = [
    (check_entity_id, ["k", "7", "key-1", "user@example.com", "org:team.a_b", "A" * 256, "日" * 256, *TEXT_NAMES]),
    (check_principal, ["alice", "ci@build:7", "ann+ops@x.com"]),
    (check_namespace, ["default", "tenant-1"]),
    (check_resource, ["gpt-4", "openai/gpt-4:latest", "0", "v1/chat.completions@eu", "日" * 128, *TEXT_NAMES]),
    (check_config_resource, ["gpt-4", "_default_", "*"]),
    (check_limit_name, ["rpm", "tpm_in", "Tokens.per-minute", "wcu2", "WCU", "x"]),
    (check_stack_name, ["my-app", "A1", "x"]),
]

NEVER_A_NAME = [
    "",
    "#",
    "a#b",
    "a\n",
    "\na",
    "a\tb",
    "a\x00",
    "a\x7f",
    "a\N{ZERO WIDTH SPACE}b",
    "\N{RIGHT-TO-LEFT OVERRIDE}a",
    "a\N{LINE SEPARATOR}b",
    "\ud800",
    "_a",
    "$SYSTEM",
    None,
    7,
    1.5,
    True,
    b"a",
    ["a"],
    {"a": 1},
    object,
]

NOT_THIS_KIND_OF_NAME: list[tuple[Check, list[str]]] = [
    (check_entity_id, ["_default_", "*", "\N{ROCKET}" * 256]),
    (check_resource, ["_default_", "*", "\N{ROCKET}" * 128]),
    *((check, [" ", "*", "a b", "é", "٣", "-a", ".a", ":a", "@a", "/a", "a,b", "a*", "a/b"]) for check in WORDS),
    (check_config_resource, ["_default", "_default_2", "_default_\n"]),
    (check_limit_name, ["1rpm", "a:b", "a@b", "a/b", "wcu"]),
    (check_stack_name, ["1a", "a_b", "a.b", "a:b", "a/b"]),
]


def rows(table: list[tuple[Check, list[Any]]]) -> list[Any]:
    return [
        pytest.param(check, value, id=f"{check.__name__}({value!r:.20})")
        for check, values in table
        for value in values
    ]


def test_values_are_also_in_the_package_of_models() -> None:
    import zae_limiter
    from zae_limiter import models

    named = [name for name, home in zae_limiter._HOME_OF.items() if home.startswith("models.")]
    assert {"Limit", "Entity", "LimitStatus", "Event"} <= set(named)
    for name in named:
        assert getattr(models, name) is getattr(zae_limiter, name)
    with pytest.raises(AttributeError):
        models.RateLimiter  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(("check", "name"), rows(VALID_NAMES))
def test_a_valid_name_is_returned_as_it_is(check: Check, name: str) -> None:
    assert check(name) == name


@pytest.mark.parametrize(
    ("check", "value"), rows([(check, NEVER_A_NAME) for check in EVERY_NAME]) + rows(NOT_THIS_KIND_OF_NAME)
)
def test_an_invalid_name_is_refused_with_what_would_be_right(check: Check, value: object) -> None:
    if check is check_principal and value is None:
        assert check(value) is None
        return
    with pytest.raises(ValidationError) as caught:
        check(value, "the_field")
    error = caught.value
    assert error.field == "the_field"
    assert error.value is value
    assert str(error).startswith("the_field: ")
    assert "letters" in error.reason or "choose another name" in error.reason


@pytest.mark.parametrize(("check", "longest"), LONGEST, ids=lambda value: getattr(value, "__name__", value))
def test_a_name_may_be_as_long_as_this_and_no_longer(check: Check, longest: int) -> None:
    assert check("a" * longest) == "a" * longest
    with pytest.raises(ValidationError, match=f"at most {longest} characters"):
        check("a" * (longest + 1))


@pytest.mark.parametrize("check", EVERY_NAME)
def test_every_position_of_a_name_refuses_the_separator_of_keys(check: Check) -> None:
    for position in range(4):
        with pytest.raises(ValidationError):
            check("abc"[:position] + "#" + "abc"[position:])


def test_the_reserved_limit_name_says_that_it_is_reserved() -> None:
    with pytest.raises(ValidationError, match="'wcu' is reserved; choose another name"):
        Limit.per_minute("wcu", 10)


def test_a_long_value_is_shown_shortened() -> None:
    with pytest.raises(ValidationError) as caught:
        check_entity_id("x" * 10_000)
    assert len(str(caught.value)) < 200
    assert caught.value.value == "x" * 10_000


# Amounts

NEVER_AN_AMOUNT = [True, False, 1.0, 0.5, "1", None, float("nan"), float("inf"), 1j, [1], b"1"]


@pytest.mark.parametrize("value", [0, 1, 10**15])
def test_a_whole_number_from_zero_is_an_amount(value: int) -> None:
    assert check_amount(value, "tpm") == value


@pytest.mark.parametrize("value", [*NEVER_AN_AMOUNT, -1, -(10**15), 10**15 + 1], ids=repr)
def test_anything_else_is_not_an_amount(value: object) -> None:
    with pytest.raises(ValidationError, match="tpm: must be a whole number of tokens from 0 to") as caught:
        check_amount(value, "tpm")
    assert caught.value.field == "tpm"
    assert caught.value.value is value


@pytest.mark.parametrize("value", [-(10**15), -1, 0, 1, 10**15])
def test_a_delta_may_have_either_sign(value: int) -> None:
    assert check_delta(value, "tpm") == value


@pytest.mark.parametrize("value", NEVER_AN_AMOUNT, ids=repr)
def test_a_delta_is_a_whole_number_too(value: object) -> None:
    with pytest.raises(ValidationError, match="tpm: must be a whole number of tokens") as caught:
        check_delta(value, "tpm")
    assert caught.value.value is value


# Limits

VALID_LIMIT = {"name": "rpm", "capacity": 10, "refill_amount": 10, "refill_period_seconds": 60, "burst": 15}
NEVER_TOKENS = [0, -1, MAX_TOKENS + 1, *NEVER_AN_AMOUNT]
INVALID_FIELDS = [
    *(("capacity", value, f"whole number of tokens from 1 to {MAX_TOKENS}") for value in NEVER_TOKENS),
    *(("refill_amount", value, f"whole number of tokens from 1 to {MAX_TOKENS}") for value in NEVER_TOKENS),
    *(
        ("burst", value, f"whole number of tokens from 1 to {MAX_TOKENS}")
        for value in NEVER_TOKENS
        if value is not None
    ),
    *(
        ("refill_period_seconds", value, f"whole number of seconds from 1 to {MAX_PERIOD_SECONDS}")
        for value in [0, -1, MAX_PERIOD_SECONDS + 1, *NEVER_AN_AMOUNT]
    ),
]


@pytest.mark.parametrize(
    ("field", "value", "advice"), INVALID_FIELDS, ids=[f"{field}={value!r}" for field, value, _ in INVALID_FIELDS]
)
def test_a_limit_with_an_invalid_number_says_which_and_what_it_may_be(field: str, value: object, advice: str) -> None:
    arguments: dict[str, Any] = VALID_LIMIT | {field: value}
    with pytest.raises(ValidationError, match=advice) as caught:
        Limit(**arguments)
    assert caught.value.field == field
    assert caught.value.value is value


def test_a_limit_may_be_as_large_as_the_largest_and_as_small_as_one() -> None:
    largest = Limit("a", MAX_TOKENS, MAX_TOKENS, MAX_PERIOD_SECONDS, MAX_TOKENS)
    smallest = Limit("a", 1, 1, 1, 1)
    assert (largest.burst, smallest.burst) == (MAX_TOKENS, 1)
    assert MAX_PERIOD_SECONDS == 366 * 86_400


def test_the_burst_is_the_capacity_unless_it_is_given() -> None:
    assert Limit("rpm", 10, 5, 60).burst == 10
    assert Limit("rpm", 10, 5, 60, None).burst == 10  # type: ignore[arg-type]
    assert Limit("rpm", 10, 5, 60, 3).burst == 3


@pytest.mark.parametrize(
    ("make", "seconds"),
    [(Limit.per_second, 1), (Limit.per_minute, 60), (Limit.per_hour, 3_600), (Limit.per_day, 86_400)],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_the_short_forms_name_their_period(make: Callable[..., Limit], seconds: int) -> None:
    assert make("rpm", 7) == Limit("rpm", 7, 7, seconds, 7)
    assert make("rpm", 7, burst=9) == Limit("rpm", 7, 7, seconds, 9)


def test_a_limit_describes_itself_as_it_is_made() -> None:
    limit = Limit.custom("tpm", 100, 5, 2, burst=30)
    assert Limit(**limit.as_dict()) == limit


def test_a_limit_is_a_value() -> None:
    assert Limit.per_minute("rpm", 5) == Limit.per_minute("rpm", 5, burst=5)
    assert len({Limit.per_minute("rpm", 5), Limit.per_minute("rpm", 5), Limit.per_minute("rpm", 6)}) == 2
    with pytest.raises(AttributeError):
        Limit.per_minute("rpm", 5).burst = 6  # type: ignore[misc]


RPM, TPM = Limit.per_minute("rpm", 1), Limit.per_minute("tpm", 1)

NOT_A_LIST_OF_LIMITS: list[tuple[object, str]] = [
    (None, "must be a list of Limit"),
    (7, "must be a list of Limit"),
    (RPM, "must be a list of Limit"),
    ("rpm", "must be a list of Limit"),
    ({"rpm": 1}, "must be a list of Limit"),
    ([RPM, {"name": "tpm"}], "must be a list of Limit"),
    ([RPM, None], "must be a list of Limit"),
    ([], "must have at least one Limit"),
    ((), "must have at least one Limit"),
    ([RPM, TPM, Limit.per_second("rpm", 2)], "names a limit twice"),
]


@pytest.mark.parametrize(
    ("value", "advice"), NOT_A_LIST_OF_LIMITS, ids=[repr(v)[:30] for v, _ in NOT_A_LIST_OF_LIMITS]
)
def test_what_is_no_list_of_different_limits_is_refused(value: object, advice: str) -> None:
    with pytest.raises(ValidationError, match=advice) as caught:
        check_limits(value, "limits")
    assert caught.value.field == "limits"


@pytest.mark.parametrize("limits", [[RPM, TPM], (RPM, TPM), iter([RPM, TPM])], ids=["list", "tuple", "iterator"])
def test_limits_may_come_in_any_iterable_and_keep_their_order(limits: Any) -> None:
    assert check_limits(limits) == (RPM, TPM)


# Choices


@pytest.mark.parametrize(
    ("kind", "word"),
    [(kind, word) for kind in (OnUnavailable, OnError, WindowType) for word in kind],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_choice_may_be_made_by_its_word(kind: Any, word: str) -> None:
    assert check_choice(kind, str(word), "choice") is word


@pytest.mark.parametrize("value", ["", "ALLOW", "deny", None, True, 1, b"allow", "allow\n"])
def test_another_word_is_refused_with_those_that_would_do(value: object) -> None:
    with pytest.raises(ValidationError, match="must be 'allow', 'block' or 'local'") as caught:
        check_choice(OnUnavailable, value, "on_unavailable")
    assert (caught.value.field, caught.value.value) == ("on_unavailable", value)
