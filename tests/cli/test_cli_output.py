"""Tables, pages, trees, documents: how answers are laid out."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import pytest
from cli_runner import CommandRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from zae_limiter import Entity, Page
from zae_limiter.cli.output.console import Output, shown
from zae_limiter.cli.output.documents import streamed
from zae_limiter.cli.output.text_tables import Column, fitting, print_rows
from zae_limiter.cli.pages import Pages
from zae_limiter.cli.views.entity_tree import branch, forest, node_document


def output(width: int) -> tuple[Output, io.StringIO]:
    out = io.StringIO()
    return Output(Console(file=out, width=width, highlight=False)), out


# Tables


@given(st.lists(st.tuples(st.integers(0, 60), st.booleans()), min_size=1, max_size=8), st.integers(1, 200))
def test_columns_give_way_from_the_widest_and_never_more_than_needed(
    columns: list[tuple[int, bool]], room: int
) -> None:
    natural = [width for width, _ in columns]
    shrinkable = [may for _, may in columns]
    fitted = fitting(natural, shrinkable, room)
    gaps = 2 * (len(natural) - 1)
    assert all(now == before for now, before, may in zip(fitted, natural, shrinkable, strict=True) if not may)
    assert all(now <= before for now, before in zip(fitted, natural, strict=True))
    if sum(natural) + gaps <= room:
        assert fitted == natural
    else:
        assert sum(fitted) + gaps >= min(room, sum(fitted) + gaps)


def test_later_pages_have_no_heading_and_the_same_columns() -> None:
    sheet, out = output(80)
    pages = [[("a", "1")], [("bb", "22")], [], [("a long name", "333")]]
    assert print_rows(sheet, (Column("name"), Column("n", numbers=True)), iter(pages))
    assert out.getvalue().splitlines() == [
        "name  n",
        "───────",
        "a     1",
        "bb    22",
        "a long name  333",
    ]


def test_rows_are_printed_before_the_next_page_is_asked_for() -> None:
    sheet, out = output(80)
    seen = []

    def pages() -> Iterator[list[tuple[str]]]:
        for name in ("one", "two"):
            seen.append(out.getvalue())
            yield [(name,)]

    print_rows(sheet, (Column("name"),), pages())
    assert "one" in seen[1]


def test_no_rows_print_nothing() -> None:
    sheet, out = output(80)
    assert not print_rows(sheet, (Column("name"),), iter([[], []]))
    assert out.getvalue() == ""


def test_what_does_not_fit_goes_on_below_and_nothing_is_lost() -> None:
    sheet, out = output(30)
    print_rows(sheet, (Column("name"), Column("n", numbers=True)), [[("x" * 50, "1,234,567")]])
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 30
    assert out.getvalue().count("x") == 50
    assert "1,234,567" in lines[2]


def test_a_pipe_cuts_nothing(runner: CommandRunner) -> None:
    name = "n" * 200
    runner.run("entity", "create", "key-1", "--name", name)
    assert name in runner.run("entity", "list", width=None).out


def test_marks_for_what_would_command_a_terminal() -> None:
    assert shown("a\x1b[31mb\u202ec\nd\té") == "a�[31mb�c\nd�é"


# Pages


def numbers(upto: int) -> tuple[list[tuple[int, str | None]], Pages[int]]:
    asked: list[tuple[int, str | None]] = []

    def fetch(size: int, cursor: str | None) -> Page[int]:
        asked.append((size, cursor))
        start = int(cursor or 0)
        end = min(start + size, upto)
        return Page(range(start, end), str(end) if end < upto else None)

    return asked, Pages(fetch, None, page=10)


def test_every_page_is_followed() -> None:
    asked, pages = numbers(25)
    assert list(pages.items()) == list(range(25))
    assert asked == [(10, None), (10, "10"), (10, "20")]
    assert (pages.seen, pages.more) == (25, False)


@pytest.mark.parametrize(("most", "seen", "more"), [(10, 10, True), (12, 12, True), (25, 25, False), (99, 25, False)])
def test_a_limit_stops_and_says_whether_there_is_more(most: int, seen: int, more: bool) -> None:
    pages = Pages(numbers(25)[1]._fetch, most, page=10)
    assert len(list(pages.items())) == seen
    assert (pages.seen, pages.more) == (seen, more)


def test_large_namespaces_are_listed_whole(runner: CommandRunner) -> None:
    with runner.limiter() as limiter:
        for number in range(450):
            limiter.create_entity(f"key-{number:03}")
    assert len(runner.run("entity", "list").out.splitlines()) == 452
    document = json.loads(runner.run("entity", "list", "--json").out)
    assert [entity["entity_id"] for entity in document["entities"]] == [f"key-{number:03}" for number in range(450)]
    assert document["more"] is False
    assert json.loads(runner.run("entity", "list", "--json", "--limit", "200").out)["more"] is True


# Documents


@given(
    st.lists(st.dictionaries(st.text(), st.text() | st.integers() | st.none(), max_size=3), max_size=5), st.booleans()
)
def test_a_streamed_document_is_the_document(items: list[dict[str, object]], more: bool) -> None:
    assert json.loads("".join(streamed("things", items, lambda: more))) == {"things": items, "more": more}


def test_a_list_that_cannot_be_read_prints_nothing() -> None:
    def items() -> Iterator[dict[str, object]]:
        raise RuntimeError
        yield {}

    with pytest.raises(RuntimeError):
        next(streamed("things", items(), lambda: False))


# Trees


def test_a_tree_shows_who_is_below_whom_in_any_order() -> None:
    entities = [
        Entity("c", parent_id="b", cascade=True),
        Entity("b", parent_id="a"),
        Entity("a", name="Acme"),
        Entity("d", parent_id="a"),
        Entity("orphan", parent_id="gone"),
    ]
    assert [branch(node).plain for node in forest(entities)] == ["a  Acme", "├─ b", "│  └─ c ↑", "└─ d", "orphan"]
    assert [node_document(node)["depth"] for node in forest(entities)] == [0, 1, 2, 1, 0]


def test_a_tree_may_be_deeper_than_python_recurses() -> None:
    entities = [Entity("e0"), *(Entity(f"e{depth}", parent_id=f"e{depth - 1}") for depth in range(1, 3_000))]
    assert sum(1 for _ in forest(entities)) == 3_000
