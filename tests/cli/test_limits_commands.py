"""``zae-limiter limits``, as a shell sees it: what people read, and what scripts read."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from manifest_shell import CHANGED, EXPORT, PLAN, Answer, repository, rewrite, shell

from zae_limiter import Limit, SyncRepository

__all__ = ["repository", "shell"]

# What people read

SECOND_PLAN = """\
~ entity acme
    ~ name 'Acme Inc.' → 'Acme'
    - metadata 'plan': 'gold'
~ entity search
    - cascade
~ system
    ~ tpm:10000/min → tpm:10000/min:12000
    - on_unavailable allow
- limits of search on gpt-4  (no longer in the manifest)
    - images: 1 per 15sec, capacity 4, burst 4
- resource gpt-4  (no longer in the manifest)
    - rpm:30/min
3 to update, 2 to delete; 1 unchanged.
"""


def test_the_life_of_a_manifest(shell: Callable[..., Answer], tmp_path: Path) -> None:
    planned = shell("limits", "plan", "-f", "limits.yaml")
    assert (planned.returncode, planned.stdout, planned.stderr) == (0, PLAN, "")
    done = shell("limits", "apply", "-f", "limits.yaml", "--yes")
    assert (done.returncode, done.stdout, done.stderr) == (0, PLAN + "Applied 6 changes.\n", "")
    again = shell("limits", "apply", "-f", "limits.yaml")
    assert (again.returncode, again.stdout) == (0, "Nothing to change: all 6 as the manifest says.\n")
    exported = shell("limits", "export")
    assert (exported.returncode, exported.stdout) == (0, EXPORT)
    rewrite(tmp_path, CHANGED)
    planned = shell("limits", "plan", "-f", "limits.yaml", "--exit-code")
    assert (planned.returncode, planned.stdout) == (3, SECOND_PLAN)
    assert shell("limits", "apply", "-f", "limits.yaml", "-y").returncode == 0
    planned = shell("limits", "plan", "-f", "limits.yaml", "--exit-code")
    assert (planned.returncode, planned.stdout) == (0, "Nothing to change: all 4 as the manifest says.\n")


def test_records_are_kept_out_of_sight(shell: Callable[..., Answer]) -> None:
    shell("limits", "apply", "-f", "limits.yaml", "--yes")
    listed = shell("entity", "list", "--json")
    assert [entity["entity_id"] for entity in json.loads(listed.stdout)["entities"]] == ["acme", "search"]
    for command in (["entity", "list"], ["entity", "tree"], ["entity", "list", "--with-limits"]):
        assert "zael:" not in shell(*command).stdout
    assert "zael:manifest:platform" in shell("entity", "tree", "zael:manifests").stdout


def test_drift_says_who(shell: Callable[..., Answer], repository: SyncRepository) -> None:
    shell("limits", "apply", "-f", "limits.yaml", "--yes")
    clean = shell("limits", "diff", "-f", "limits.yaml", "--exit-code")
    assert (clean.returncode, clean.stdout) == (0, "Everything is as limits.yaml says.\n")
    with repository:
        repository.set_resource_defaults("gpt-4", [Limit.per_minute("rpm", 99)], principal="bob")
        repository.create_entity("stranger")
    drifted = shell("limits", "diff", "-f", "limits.yaml", "--exit-code", "--all")
    first, *rest = drifted.stdout.splitlines()
    assert drifted.returncode == 3
    assert first.startswith("~ resource gpt-4  (changed; by bob at 20")
    assert rest == [
        "    - rpm:30/min",
        "    + rpm:99/min",
        "? entity stranger  (no manifest manages it)",
        "2 not as limits.yaml says.",
    ]


def test_an_export_can_be_applied(shell: Callable[..., Answer], tmp_path: Path) -> None:
    shell("limits", "apply", "-f", "limits.yaml", "--yes")
    said = shell("limits", "export", "-f", "copy.yaml", "--name", "platform")
    assert (said.returncode, said.stdout) == (0, "wrote copy.yaml: 6 things\n")
    assert shell("limits", "plan", "-f", "copy.yaml", "--exit-code").returncode == 0
    assert shell("limits", "export", "-f", "copy.yaml").returncode == 2
    assert shell("limits", "export", "-f", "copy.yaml", "--yes").returncode == 0
    through_stdin = shell("limits", "plan", "-f", "-", given=(tmp_path / "copy.yaml").read_text())
    assert "is managed by manifest 'platform'" in through_stdin.stdout
    as_json = shell("limits", "export", "--json", "--name", "platform")
    assert shell("limits", "plan", "-f", "-", "--exit-code", given=as_json.stdout).returncode == 0


# What scripts read


def document(answer: Answer, kind: str) -> Any:
    """What a command answered with ``--json``, checked against the schema of it."""
    schema = json.loads(files("zae_limiter.cli").joinpath("schemas/limits.json").read_text(encoding="utf-8"))
    found = json.loads(answer.stdout)
    jsonschema.Draft202012Validator({**schema, "$ref": f"#/$defs/{kind}"}).validate(found)
    return found


def test_json_is_one_document(shell: Callable[..., Answer], tmp_path: Path) -> None:
    plan = document(shell("limits", "plan", "-f", "limits.yaml", "--json"), "limits_plan")
    assert (plan["manifest"], plan["namespace"], plan["conflicts"]) == ("platform", "default", [])
    assert plan["changes"][0] == {
        "action": "create",
        "kind": "entity",
        "entity_id": "acme",
        "resource": None,
        "before": None,
        "after": {"name": "Acme Inc.", "parent": None, "cascade": False, "metadata": {"plan": "gold"}},
        "managed": False,
        "replaced": [],
        "line": 6,
    }
    outcome = document(shell("limits", "apply", "-f", "limits.yaml", "--json", "--yes"), "limits_apply")
    assert ([change["kind"] for change in outcome["done"]], outcome["error"]) == (
        ["entity", "entity", "system", "resource", "limits", "limits"],
        None,
    )
    rewrite(tmp_path, CHANGED)
    assert len(document(shell("limits", "plan", "-f", "limits.yaml", "--json"), "limits_plan")["changes"]) == 5
    drift = document(shell("limits", "diff", "-f", "limits.yaml", "--json"), "limits_diff")["drift"]
    assert [item["difference"] for item in drift] == ["changed", "changed", "changed", "left over", "left over"]
    exported = document(shell("limits", "export", "-f", "x.yaml", "--json"), "limits_export")
    assert exported == {"file": "x.yaml", "things": 6}
    assert json.loads(shell("limits", "schema").stdout)["title"] == "zae-limiter manifest"


def test_problems_are_lines_that_editors_can_follow(shell: Callable[..., Answer], tmp_path: Path) -> None:
    rewrite(tmp_path, "manifest: m\nentites: {}\nresources: {gpt-4: [rpm:1/fortnight]}\n")
    for name in ("plan", "apply", "diff"):
        answer = shell("limits", name, "-f", "limits.yaml")
        assert (answer.returncode, answer.stdout) == (1, "")
        assert answer.stderr.splitlines() == [
            "limits.yaml:2:1: 'entites' is not a key of a manifest; did you mean 'entities'?",
            "limits.yaml:3:21: limit 'rpm:1/fortnight' has an unknown unit 'fortnight'; "
            "write sec, min, hour, day, week, month or inflight",
        ]
    rewrite(tmp_path, "manifest: m\n" + "".join(f"x{number}: 1\n" for number in range(30)))
    answer = shell("limits", "plan", "-f", "limits.yaml")
    assert len(answer.stderr.splitlines()) == 21
    assert answer.stderr.endswith("… and 10 more\n")


def test_conflicts_are_shown_and_change_nothing(shell: Callable[..., Answer], tmp_path: Path) -> None:
    rewrite(tmp_path, "manifest: m\nentities:\n  a:\n    parent: nobody\n")
    expected = "! limits.yaml:4: nobody, the parent of a, does not exist; add it to entities, or create it"
    for name in ("plan", "apply"):
        answer = shell("limits", name, "-f", "limits.yaml")
        assert answer.returncode == 1
        assert expected in answer.stdout.splitlines()
    refused = shell("limits", "apply", "-f", "limits.yaml", "--json", "--yes")
    conflicts = document(refused, "limits_plan")["conflicts"]
    assert [(conflict["entity_id"], conflict["line"]) for conflict in conflicts] == [("a", 4)]
    assert shell("limits", "export").stdout == "# What exists in namespace default.\nmanifest: limits\n"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["plan"], 2, "Missing option '-f'"),
        (["plan", "-f", "nowhere.yaml"], 2, "does not exist"),
        (["plan", "-f", "."], 2, "is a directory"),
        (["apply", "-f", "limits.yaml"], 2, "add --yes"),
        (["apply", "-f", "-"], 2, "add --yes"),
        (["plan", "-f", "limits.yaml", "--namespace", "nowhere"], 1, "namespace register nowhere"),
        (["plan", "-f", "limits.yaml", "--url", "nothing://"], 1, "must begin with one of"),
        (["apply", "-f", "limits.yaml", "--yes", "--principal", "a#b"], 1, "principal"),
        (["export", "--name", "a b"], 1, "manifest: must be letters"),
        (["export", "--resource", "a#b"], 1, "resource: must be letters"),
        (["nothing"], 2, "No such command"),
    ],
)
def test_wrong_use_is_said_in_a_line(
    shell: Callable[..., Answer], arguments: list[str], code: int, words: str
) -> None:
    answer = shell("limits", *arguments)
    assert answer.returncode == code, answer
    assert words in " ".join(answer.stderr.split())
    assert "Traceback" not in answer.stderr


def test_a_manifest_may_say_which_namespace_it_is_for(
    shell: Callable[..., Answer], repository: SyncRepository, tmp_path: Path
) -> None:
    with repository:
        repository.register_namespace("prod")
        repository.register_namespace("test")
    rewrite(tmp_path, "manifest: m\nnamespace: prod\nresources: {gpt-4: [rpm:1]}\n")
    refused = shell("limits", "plan", "-f", "limits.yaml", "--namespace", "test")
    assert (refused.returncode, "is for namespace 'prod', not 'test'" in refused.stderr) == (2, True)
    assert shell("limits", "plan", "-f", "limits.yaml", ZAEL_NAMESPACE="test").returncode == 2
    assert shell("limits", "apply", "-f", "limits.yaml", "--yes").returncode == 0
    assert "gpt-4" in shell("limits", "export", "--namespace", "prod").stdout
    assert "gpt-4" not in shell("limits", "export").stdout


def test_the_audit_trail_says_who_applied_which_manifest(
    shell: Callable[..., Answer], repository: SyncRepository
) -> None:
    shell("limits", "apply", "-f", "limits.yaml", "--yes")
    shell("limits", "apply", "-f", "limits.yaml", "--yes", "--principal", "ci:7")
    with repository:
        principals = [event.principal for event in repository.get_audit_events("acme").items]
    assert principals == ["manifest:platform:ann"] * 2
