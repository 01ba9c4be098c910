"""Access switches in manifests: applied, taken back, exported, and wrong ones refused."""

from __future__ import annotations

from datetime import timedelta

import pytest

from zae_limiter import SyncRepository
from zae_limiter.manifests.apply import apply
from zae_limiter.manifests.change_plan import plan_changes
from zae_limiter.manifests.export import write_manifest
from zae_limiter.manifests.inventory import read_situation, take_inventory
from zae_limiter.manifests.parser import read_manifest
from zae_limiter.manifests.problems import ManifestError
from zae_limiter.models.moments import at
from zae_limiter.running.clocks import machine_clock

TEXT = """\
manifest: shop
access:
  system: observe
  resources:
    gpt-4: block
  entities:
    key-1: block
    key-2:
      _default_: observe
      gpt-4: block
"""


@pytest.fixture
def repository() -> SyncRepository:
    return SyncRepository.open("memory://")


def applied(repository: SyncRepository, text: str) -> None:
    manifest = read_manifest(text)
    outcome = apply(repository, plan_changes(manifest, read_situation(repository, manifest)))
    assert outcome.error is None


def switches(repository: SyncRepository) -> list[tuple[str | None, str | None, str]]:
    return [(one.entity_id, one.resource, str(one.mode)) for one in repository.list_access().items]


def test_switches_are_turned_exported_and_taken_back(repository: SyncRepository) -> None:
    applied(repository, TEXT)
    assert switches(repository) == [
        (None, None, "observe"),
        (None, "gpt-4", "block"),
        ("key-1", None, "block"),
        ("key-2", None, "observe"),
        ("key-2", "gpt-4", "block"),
    ]
    exported = write_manifest("shop", take_inventory(repository))
    assert read_manifest(exported).things == read_manifest(TEXT).things
    applied(repository, TEXT)
    applied(repository, "manifest: shop\naccess: {resources: {gpt-4: observe}}\n")
    assert switches(repository) == [(None, "gpt-4", "observe")]


def test_a_switch_that_ends_by_itself_is_an_operators(repository: SyncRepository) -> None:
    repository.set_access("block", entity_id="key-1", until=at(machine_clock()) + timedelta(hours=1))
    assert take_inventory(repository) == {}
    applied(repository, TEXT)  # unless a manifest names it
    assert repository.get_access(entity_id="key-1").until is None


@pytest.mark.parametrize(
    "text",
    [
        "manifest: a\naccess: {system: enforce}\n",
        "manifest: a\naccess: {system: [block]}\n",
        "manifest: a\naccess: {resources: {'a#b': block}}\n",
        "manifest: a\naccess: {entities: {key: {'a#b': block}}}\n",
        "manifest: a\naccess: {nobody: block}\n",
    ],
)
def test_wrong_switches_are_refused(text: str) -> None:
    with pytest.raises(ManifestError):
        read_manifest(text)
