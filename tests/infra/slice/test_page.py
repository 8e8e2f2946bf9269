"""Pages: one per system, as committed, and `headrace where` on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from infra.cli.where import app
from infra.slice import page
from schemas.catalog import topics_of
from streams import catalog

RUN = CliRunner()


def test_writing_the_committed_pages_leaves_no_diff(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = {file.name: file.read_bytes() for file in page.PAGES.glob("*.md")}
    monkeypatch.setattr(page, "PAGES", tmp_path)
    assert page.write() == [tmp_path / f"{name}.md" for name in catalog.SYSTEMS]
    written = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert {name: committed.get(name) for name in written} == written
    assert page.write() == []


@pytest.mark.parametrize("name", catalog.SYSTEMS)
def test_a_page_names_every_place_event_table_and_route(name: str) -> None:
    text = page.page(name)
    system = catalog.load(name)
    places = [page.located(place, name) for _, place in page.PLACES]
    records = [record for topic in topics_of(name) for record in topic.records]
    fields = [field for record in records for field in record.columns]
    tables = [table.name for p in system.projections for table in p.model.tables]
    wanted = [*places, *fields, *tables, *(r.name for r in records)]
    assert not [word for word in wanted if f"`{word}`" not in text and f" {word}`" not in text]
    assert "POST /v1/" in text


def test_an_unknown_system_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(catalog.UnknownSystem, match="did you mean leaderboard"):
        page.page("leaderbord")
    shown = RUN.invoke(app, ["leaderbord"])
    assert shown.exit_code == 2
    assert "leaderboard?" in shown.output


def test_where_lists_all_systems_and_shows_one() -> None:
    listed = RUN.invoke(app, [])
    assert listed.exit_code == 0
    assert [line.split()[0] for line in listed.stdout.splitlines()] == list(catalog.SYSTEMS)
    shown = RUN.invoke(app, ["ads"])
    assert shown.exit_code == 0
    assert "Where it lives" in shown.stdout
    assert "streams/ads.py" in shown.stdout


def test_where_writes_what_is_out_of_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "PAGES", tmp_path)
    page.write()
    (tmp_path / "ads.md").write_text("old")
    shown = RUN.invoke(app, ["--write"])
    assert (shown.exit_code, shown.stdout) == (0, "wrote ads.md\n")
    assert (tmp_path / "ads.md").read_text() == page.page("ads")
