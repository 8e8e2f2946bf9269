"""`schemas check`: against other versions, a commit, and what is generated."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schemas.catalog import SYSTEMS
from schemas.check import GitError, check_examples, check_generated, check_git, check_versions
from schemas.generate import generate

PRICE = {"name": "price", "type": "long", "doc": "The price."}
NOTE = {"name": "note", "type": ["null", "string"], "default": None, "doc": "A note."}


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, timeout=30)


@pytest.fixture
def committed(shop: Any) -> Any:
    """The shop in a repository, with one commit."""
    git(shop.root.parent, "init", "-q")
    git(shop.root.parent, "add", ".")
    git(shop.root.parent, "commit", "-q", "-m", "first")
    return shop


def test_the_real_schemas_are_in_order() -> None:
    assert list(check_generated(SYSTEMS)) == []
    assert list(check_examples(SYSTEMS)) == []
    assert list(check_versions(SYSTEMS)) == []


def test_a_stale_file_is_found(shop: Any) -> None:
    [finding] = check_generated(["shop"], shop.root)
    assert finding.subject == "schemas/shop/events.py"
    generate(["shop"], shop.root)
    assert list(check_generated(["shop"], shop.root)) == []


def test_a_missing_and_a_wrong_example_are_found(shop: Any) -> None:
    [finding] = check_examples(["shop"], shop.root)
    assert (finding.subject, finding.what) == ("headrace.shop.OrderPlaced", "has no example")
    shop.example({"order_id": "o-1"})
    [finding] = check_examples(["shop"], shop.root)
    assert finding.against == "order_placed.v1.json"
    shop.example({"order_id": "o-1", "placed_at": 1})
    assert list(check_examples(["shop"], shop.root)) == []


def test_versions_are_checked_against_all_before(shop: Any, make_order: Callable[..., Any]) -> None:
    """v3 reads v2 but not v1: transitive compatibility finds it."""
    shop.schema(make_order(NOTE), "order_placed.v2.avsc")
    assert list(check_versions(["shop"], shop.root)) == []
    required = {key: value for key, value in NOTE.items() if key != "default"}
    shop.schema(make_order(required), "order_placed.v3.avsc")
    [finding] = check_versions(["shop"], shop.root)
    assert finding.against == "v1 → v3"
    assert "OrderPlaced.note: added without a default" in finding.what


def test_a_changed_default_is_found(shop: Any, make_order: Callable[..., Any]) -> None:
    shop.schema(make_order({**PRICE, "default": 0}), "order_placed.v2.avsc")
    shop.schema(make_order({**PRICE, "default": 1}), "order_placed.v3.avsc")
    [finding] = check_versions(["shop"], shop.root)
    assert "OrderPlaced.price: default changed from 0 to 1" in finding.what


def test_the_commit_is_the_past(committed: Any, make_order: Callable[..., Any]) -> None:
    assert list(check_git(["shop"], root=committed.root)) == []
    committed.schema(make_order(PRICE))
    [finding] = check_git(["shop"], root=committed.root)
    assert finding.subject == "headrace.shop.OrderPlaced"
    assert finding.against == "HEAD:schemas/shop/order_placed.v1.avsc → v1"
    assert "OrderPlaced.price: added without a default" in finding.what


def test_an_older_revision_can_be_the_past(committed: Any, make_order: Callable[..., Any]) -> None:
    committed.schema(make_order(PRICE))
    git(committed.root.parent, "commit", "-q", "-a", "-m", "second")
    assert list(check_git(["shop"], "HEAD", committed.root)) == []
    assert len(list(check_git(["shop"], "HEAD~1", committed.root))) == 1


def test_a_record_that_is_gone_is_found(committed: Any, make_order: Callable[..., Any]) -> None:
    (committed.folder / "order_placed.v1.avsc").unlink()
    other = {**make_order(), "name": "OrderMade"}
    committed.schema(other, "order_made.v1.avsc")
    text = (committed.folder / "topics.toml").read_text()
    committed.topics(text.replace("OrderPlaced", "OrderMade"))
    [finding] = check_git(["shop"], root=committed.root)
    assert finding.subject == "headrace.shop.OrderPlaced"
    assert "removed, but its events are still on the log" in finding.what


def test_a_system_that_is_gone_is_found(committed: Any) -> None:
    [finding] = check_git([], root=committed.root)
    assert "removed" in finding.what


def test_all_committed_versions_are_the_past(
    committed: Any, make_order: Callable[..., Any]
) -> None:
    for version in range(2, 12):
        committed.schema(make_order(NOTE), f"order_placed.v{version}.avsc")
    git(committed.root.parent, "add", ".")
    git(committed.root.parent, "commit", "-q", "-m", "second")
    committed.schema(make_order({**NOTE, "type": ["null", "long"]}), "order_placed.v11.avsc")
    found = {f.against.split(" ")[0] for f in check_git(["shop"], root=committed.root)}
    assert found == {f"HEAD:schemas/shop/order_placed.v{n}.avsc" for n in range(2, 12)}


def test_an_unknown_revision_is_explained(committed: Any) -> None:
    with pytest.raises(GitError, match="nope"):
        list(check_git(["shop"], "nope", committed.root))


def test_no_repository_is_explained(shop: Any) -> None:
    with pytest.raises(GitError, match="not a git repository"):
        list(check_git(["shop"], root=shop.root))


def test_a_revision_is_never_an_option(committed: Any, tmp_path: Path) -> None:
    with pytest.raises(GitError):
        list(check_git(["shop"], f"--output={tmp_path / 'x'}", committed.root))
    assert not (tmp_path / "x").exists()
