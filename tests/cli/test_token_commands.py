"""Tokens of clients: shown once, kept as digests, removed at once."""

from __future__ import annotations

import hashlib
import json
import stat
from pathlib import Path

from cli_runner import CommandRunner


def test_a_token_is_shown_once_and_only_its_digest_is_kept(runner: CommandRunner, tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    made = runner.run("token", "create", "gateway", "--role", "take", "--token-file", str(path))
    assert made.code == 0
    text = made.out.strip()
    assert text.startswith("zael_")
    assert len(text) >= 37  # 192 bits
    content = path.read_text()
    assert text not in content
    assert json.loads(content)["tokens"][0]["sha256"] == hashlib.sha256(text.encode()).hexdigest()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    listed = runner.run("token", "list", "--token-file", str(path), width=120)
    assert "gateway" in listed.out
    assert "take" in listed.out


def test_bounds_of_a_token_are_listed(runner: CommandRunner, tmp_path: Path) -> None:
    file = ("--token-file", str(tmp_path / "tokens.json"))
    words = ("--role", "take", "--role", "read", "--for-namespace", "blue", "--entity-prefix", "acme/")
    made = runner.run("token", "create", "acme", *words, *file, "--json")
    assert made.code == 0
    assert json.loads(made.out)["token"].startswith("zael_")
    (found,) = json.loads(runner.run("token", "list", *file, "--json").out)["tokens"]
    assert (found["roles"], found["namespace"], found["entity_prefix"]) == (["read", "take"], "blue", "acme/")
    assert "sha256" not in found


def test_a_revoked_token_is_gone_and_a_name_is_used_once(runner: CommandRunner, tmp_path: Path) -> None:
    file = ("--token-file", str(tmp_path / "tokens.json"))
    assert runner.run("token", "create", "a", "--role", "read", *file).code == 0
    assert runner.run("token", "create", "a", "--role", "read", *file).code == 1
    assert runner.run("token", "revoke", "b", "--yes", *file).code == 1
    assert runner.run("token", "revoke", "a", *file).code == 2  # there is no terminal to ask on
    assert runner.run("token", "revoke", "a", "--yes", *file).code == 0
    assert json.loads((tmp_path / "tokens.json").read_text()) == {"tokens": []}


def test_a_changed_file_can_be_read_by_the_same_users(runner: CommandRunner, tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    assert runner.run("token", "create", "a", "--role", "read", "--token-file", str(path)).code == 0
    path.chmod(0o640)
    assert runner.run("token", "revoke", "a", "--yes", "--token-file", str(path)).code == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_file_that_is_none_is_told(runner: CommandRunner, tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    missing = runner.run("token", "list", "--token-file", str(path))
    assert (missing.code, str(path) in missing.err) == (78, True)
    path.write_text("[]")
    broken = runner.run("token", "list", "--token-file", str(path))
    assert (broken.code, "token create" in broken.err) == (78, True)
    path.write_text('{"tokens": []}')
    path.chmod(0o666)
    open_to_all = runner.run("token", "list", "--token-file", str(path))
    assert (open_to_all.code, "chmod o-w" in open_to_all.err) == (78, True)


def test_a_role_or_name_that_is_none_is_wrong_usage(runner: CommandRunner, tmp_path: Path) -> None:
    file = ("--token-file", str(tmp_path / "tokens.json"))
    assert runner.run("token", "create", "a", "--role", "admin", *file).code == 2
    assert runner.run("token", "create", "a", *file).code == 2
    assert runner.run("token", "create", "#", "--role", "read", *file).code == 2
    assert not (tmp_path / "tokens.json").exists()
