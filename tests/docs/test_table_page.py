"""The page of the table says what is stored, where, in which units, and what each way to it costs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from access_patterns import PATTERNS, prices
from pages import ROOT
from table_records import Price, Table, attributes_written, general, write_everything

from engines.servers import Engine
from support.item_sizes import size_of
from zae_limiter import Limit
from zae_limiter.stores.dynamodb import schema
from zae_limiter.stores.dynamodb.operations.namespaces import table_params
from zae_limiter_aggregator.membership import MEMBER
from zae_limiter_aggregator.stream_checkpoints import CHECKPOINT

PAGE = ROOT / "docs" / "table.md"
SOURCES = [
    path
    for folder in ("zae_limiter/stores/dynamodb", "zae_limiter/migrations", "zae_limiter_aggregator")
    for path in (ROOT / "src" / folder).rglob("*.py")
    if not path.name.startswith("old_")  # what older layouts had
]

NS, ENTITY, RESOURCE, SHARD, HOUR = "{ns}", "{entity}", "{resource}", "{shard}", "{hour}"


def section(heading: str) -> str:
    """What stands under a heading of the page, down to the next one."""
    page = PAGE.read_text(encoding="utf-8")
    match = re.search(rf"^#+ {heading}\n(.*?)(?=^#|\Z)", page, re.MULTILINE | re.DOTALL)
    assert match, heading
    return match[1]


def rows(heading: str) -> list[list[str]]:
    """The rows of the table under a heading, without its head."""
    lines = [line for line in section(heading).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def code_in(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


# Records and their attributes


@pytest.fixture(scope="module")
def records(dynoxide: Engine) -> Iterator[list[Mapping[str, Any]]]:
    table = Table(dynoxide)
    write_everything(table)
    yield table.records()
    table.close()


@pytest.fixture(scope="module")
def written(records: list[Mapping[str, Any]]) -> Mapping[str, Mapping[str, set[str]]]:
    return attributes_written(records)


def attributes_on_page(kind: str) -> dict[str, set[str]]:
    return {name: {row[1]} for row in rows(kind.capitalize()) for name in code_in(row[0])}


KINDS = (
    "bucket",
    "entity",
    "config",
    "access switches",
    "usage",
    "lease",
    "pulse",
    "audit event",
    "version",
    "namespace",
    "stream checkpoint",
    "aggregator",
    "migration",
)


def test_every_kind_of_record_has_its_section(written: Mapping[str, Any]) -> None:
    assert set(written) == set(KINDS)
    assert re.findall(r"^### (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE) == [
        kind.capitalize() for kind in KINDS
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_is_what_the_page_has(kind: str, written: Mapping[str, Mapping[str, set[str]]]) -> None:
    assert attributes_on_page(kind) == written[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_has_a_unit(kind: str) -> None:
    plain = {"layout_version", "layout_minor", "before_layout"}
    numbers = [row for row in rows(kind.capitalize()) if row[1] == "N" and not plain & set(code_in(row[0]))]
    assert [row[0] for row in numbers if not row[2]] == []


def test_every_attribute_that_the_code_reads_is_on_the_page() -> None:
    """Also those that are written on paths which no test of this file takes."""
    known = {name for kind in KINDS for name in attributes_on_page(kind)}
    known |= {name.rpartition("_")[0] + "_{limit}" for name in known if name.startswith("joined_")}
    code = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES)
    read = re.findall(r'\w\["(\w+)"\]\["(?:S|N|BOOL|M|L)"\]', code)
    read += re.findall(r'(?:number_in|version_in|text_in)\(\w+(?:\[|, )"(\w+)"', code)
    read += re.findall(r'write\.(?:set|add|remove|demand|demand_absent)\("(\w+)"', code)
    assert len(set(read)) > 30
    assert {general(name) for name in read} - known == set()


# Keys


def test_the_keys_of_records_are_those_of_the_schema() -> None:
    on_page = [(code_in(row[1])[0], code_in(row[2])[0]) for row in rows("Records")]
    assert on_page == [
        schema.bucket_key(NS, ENTITY, RESOURCE, SHARD),  # type: ignore[arg-type]
        schema.meta_key(NS, ENTITY),
        schema.config_key(NS, None, None),
        schema.config_key(NS, None, RESOURCE),
        schema.config_key(NS, ENTITY, RESOURCE),
        schema.access_key(NS),
        (schema.pk_entity(NS, ENTITY), schema.sk_usage(RESOURCE, "hourly", HOUR, SHARD, "{inc}")),  # type: ignore[arg-type]
        schema.lease_key(NS, "{id}"),
        (schema.pk_pulses(NS), "#PULSE#{minute}#{process}"),
        (schema.pk_audit(NS, "{subject}"), schema.sk_audit("{ulid}")),
        schema.version_key(),
        schema.namespace_key("{name}"),
        schema.namespace_id_key(NS),
        (schema.pk_system(schema.REGISTRY), f"{CHECKPOINT}{{stream}}#{SHARD}"),
        (schema.pk_system(schema.REGISTRY), f"{MEMBER}{{name}}"),
        (schema.pk_system(schema.REGISTRY), "#MIGRATION"),
    ]


def test_the_indexes_are_those_of_the_schema() -> None:
    on_page = [tuple(code_in(cell)[0] for cell in row[:3]) for row in rows("Indexes")]
    expected = [
        ("GSI1", schema.gsi1(NS, "{parent}", ENTITY)),
        ("GSI1", schema.gsi1_access(NS, ENTITY, RESOURCE)),
        ("GSI2", schema.gsi2_bucket(NS, ENTITY, RESOURCE, SHARD)),  # type: ignore[arg-type]
        ("GSI2", schema.gsi2_usage(NS, RESOURCE, "hourly", HOUR, ENTITY, SHARD)),  # type: ignore[arg-type]
        ("GSI3", schema.gsi3_bucket(NS, ENTITY, RESOURCE, SHARD)),  # type: ignore[arg-type]
        ("GSI3", schema.gsi3_config(NS, RESOURCE, ENTITY)),
        ("GSI4", {"GSI4PK": schema.gsi4_pk(NS, "{slot}"), "GSI4SK": "BUCKET"}),  # type: ignore[arg-type]
    ]
    assert on_page == [(index, *keys.values()) for index, keys in expected]
    assert {index for index, *_ in on_page} == set(schema.INDEXES)
    assert f"over {schema.SPREAD} slots" in re.sub(r"\s+", " ", section("Indexes"))


def test_every_index_has_keys_only() -> None:
    assert "All four project keys only." in section("Indexes")
    indexes = table_params("any")["GlobalSecondaryIndexes"]
    assert {index["Projection"]["ProjectionType"] for index in indexes} == {"KEYS_ONLY"}


def test_what_stands_in_the_index_of_everything(records: list[Mapping[str, Any]]) -> None:
    found = {item["GSI4SK"]["S"].partition("#")[0] for item in records if "GSI4SK" in item}
    assert found == {code.partition("#")[0] for code in code_in(rows("Indexes")[-1][2])}


# Costs


@pytest.fixture(scope="module")
def measured(dynoxide: Engine) -> Iterator[Mapping[str, Price]]:
    table = Table(dynoxide)
    yield prices(table)
    table.close()


def cells_of(price: Price) -> list[str]:
    calls = ", ".join(name if count == 1 else f"{count} {name}" for name, count in price.calls.items())
    return [calls or "none", f"{price.reads:g}", f"{price.writes:g}"]


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_costs_what_the_page_says(name: str, measured: Mapping[str, Price]) -> None:
    on_page = {row[0]: row[1:] for row in rows("What each way costs")}
    assert on_page[name] == cells_of(measured[name])


def test_the_page_has_no_other_patterns() -> None:
    assert sorted(row[0] for row in rows("What each way costs")) == sorted([*PATTERNS, "acquire: denied"])


# Sizes

LIMIT_NAMES = ("rpm", "tpm", "rpd", "tpd", "usd", "ipm", "opm", "itpm", "otpm", "cpm")


@pytest.mark.parametrize("row", rows("Sizes"), ids=lambda row: f"{row[0]} limits")
def test_a_bucket_of_so_many_limits_is_so_large_and_costs_so_much(row: list[str], dynoxide: Engine) -> None:
    limits, size, units = int(row[0]), int(row[1].replace(",", "")), float(row[2])
    found, paid = bucket_of(limits, dynoxide)
    assert found == pytest.approx(size, rel=0.02)
    assert paid == units


def test_the_other_pages_agree_on_the_size_of_a_bucket() -> None:
    sizes = {row[0]: row[1] for row in rows("Sizes")}
    page = re.sub(r"\s+", " ", (ROOT / "docs" / "how-it-stays-exact.md").read_text(encoding="utf-8"))
    assert f"Two limits take about {sizes['2']} bytes, five about {sizes['5']}" in page


def bucket_of(limits: int, engine: Engine) -> tuple[int, float]:
    """The size of a bucket that is in use, and what the last grant cost."""
    table = Table(engine)
    names = LIMIT_NAMES[:limits]
    entity_id, resource = "0f8fad5b-d9cb-469f-a165-70867728950e", "gpt-4.1-mini-2025-04"
    table.first.limiter.set_resource_defaults(
        resource, [Limit.per_minute(name, 12_345 * (place + 1)) for place, name in enumerate(names)]
    )
    for _ in range(5):
        table.clock.advance(milliseconds=731)
        with table.first.limiter.acquire(entity_id, resource, dict.fromkeys(names, 17)) as lease:
            lease.settle(**dict.fromkeys(names, 23))
    table.first.calls.reset()
    with table.first.limiter.acquire(entity_id, resource, dict.fromkeys(names, 1)):
        pass
    paid = table.first.price().writes
    item = [item for item in table.records() if item["SK"]["S"] == "#STATE"][-1]
    table.close()
    return size_of(item), paid
