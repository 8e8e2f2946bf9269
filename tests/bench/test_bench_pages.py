"""The page of the benchmarks: what it makes of results, and that it is the committed one."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from infra.cli import bench as cli
from streams.runtime.kafka import partition_of
from tests.bench import all as everything
from tests.bench import clicks, paced, soak
from tests.bench.contenders import growth
from tests.bench.names import BENCHMARKS
from tests.bench.pages import generic, page, plots
from tests.bench.pages.blocks import Facts, Heading, Plot, Table, cell, markdown, said

MACHINE = {
    "cpu": "a processor",
    "cores": 2,
    "memory_gib": 8.0,
    "python": "3.11",
    "packages": {"polars": "2.1"},
    "load": [0.5],
}


def test_the_committed_page_is_what_the_committed_results_render() -> None:
    """After a new result: `./dev bench report`."""
    files = page.rendered()
    assert {name: (page.DOCS / name).read_text() for name in files} == files
    pictures = {f"{page.NAME}/{one.name}" for one in (page.DOCS / page.NAME).glob("*.svg")}
    assert pictures == files.keys() - {f"{page.NAME}.md"}


def test_no_result_is_needed(tmp_path: Path) -> None:
    assert page.rendered(tmp_path).keys() == {"benchmarks.md"}


def test_a_benchmark_nobody_knows_is_rendered_with_method_notes_and_settings(
    tmp_path: Path,
) -> None:
    result = {
        "benchmark": "unheard",
        "measured": "2026-01-02T03:04:05+00:00",
        "machine": MACHINE,
        "records": 5_000,
        "contenders": {
            "ours": {"title": "Headrace", "events_per_s": 2_000_000, "runs": [{"seconds": 1}]},
            "theirs": {
                "title": "Other | engine",
                "events_per_s": 1_500,
                "settings": {"threads": 2},
            },
        },
        "notes": {"Where another one wins": "It is warm."},
    }
    (tmp_path / "unheard.json").write_text(json.dumps(result))
    files = page.rendered(tmp_path)
    text = files["benchmarks.md"]
    for part in (
        "- records: 5,000",
        "| Headrace | 2,000,000 |",
        "| Other \\| engine | 1,500 |",
        "- **Where another one wins**: It is warm.",
        '"threads": 2',
        "2026-01-02, a processor, 2 cores",
    ):
        assert part in text
    assert "runs" not in text.partition("## unheard")[2]
    assert "Headrace" in files["benchmarks/unheard-contenders.svg"]


def test_the_method_is_the_docstring_of_the_module() -> None:
    assert page.method("soak").startswith("Does a worker's memory grow?")
    assert page.method("no-such-benchmark") == ""


def test_every_benchmark_has_its_module() -> None:
    folder = Path(page.__file__).parents[1]
    for name in BENCHMARKS:
        assert (folder / f"{name}.py").is_file() or (folder / name / "__init__.py").is_file()
        assert page.method(name), f"{name}: the page needs the method"


@pytest.mark.parametrize(
    ("result", "kinds"),
    [
        ({"a": 1, "b": None, "c": [1, 2]}, [Facts]),
        ({"rows": [{"n": 1, "rows_per_s": 5}, {"n": 2, "rows_per_s": 7}]}, [Table, Plot]),
        ({"alone": {"p50": 1.0, "p99": 2.0}, "beside": {"p50": 3.0, "p99": 4.0}}, [Table, Plot]),
        ({"loads": [{"title": "t", "visible_ms": {"p50": 1.0, "p99": 9.0}}]}, [Table, Plot]),
        ({"json": {"few": {"x": {"n": 1}}, "many": {"x": {"n": 2}}}}, None),
        ({"seconds": list(range(100))}, []),
        ({"a_to_b": {"median": 1.5, "by_turn": [1.4, 1.6]}, "n": 1}, [Facts, Table]),
    ],
)
def test_any_shape_is_rendered(result: dict[str, Any], kinds: list[type] | None) -> None:
    found = list(generic.blocks("any", result))
    if kinds is None:
        assert [one for one in found if isinstance(one, Heading)]
        assert sum(isinstance(one, Table) for one in found) == 2
    else:
        assert [type(one) for one in found] == kinds
    assert all(markdown(one, "folder") for one in found)


def test_percentiles_that_were_not_measured_are_left_for_those_that_were() -> None:
    load = {"title": "t", "written_ms": {"p50": 1.0, "p99": 2.0}, "visible_ms": {"p50": None}}
    table = next(iter(generic.blocks("any", {"loads": [load]})))
    assert isinstance(table, Table)
    assert (table.columns, table.rows) == (["title", "p50", "p99"], [["t", 1.0, 2.0]])


def test_plots_are_the_same_every_time_and_carry_their_text() -> None:
    rows = {"Headrace": (2e6, 2.5e6), "other": (5e5, None)}
    one, other = (plots.bars(rows, "events/s", ["Headrace"]) for _ in range(2))
    assert one == other
    texts = {text.text for text in ET.fromstring(one).iter("{http://www.w3.org/2000/svg}text")}
    assert {"Headrace", "other", "2 M (steady 2.5 M)", "500 k", "events/s"} <= texts


def test_the_command_knows_every_benchmark() -> None:
    assert cli.BENCHMARKS.keys() == cli.PARTS.keys() == {*BENCHMARKS, "all", "report"}


def test_an_event_waits_for_the_write_that_holds_it() -> None:
    frame = pl.DataFrame({"campaign_id": [7, 7, 7, 7]})
    place = partition_of("7", clicks.PARTITIONS)
    writes = [paced.WRITE.pack(place, *span) for span in ((0, 1, 100.0), (1, 4, 103.5))]
    taken = paced.latencies(b"".join(writes), iter([frame]), 1, 100.0)
    assert taken.tolist() == [1_500.0, 500.0]  # due at 102 and 103; the first two are warm-up
    with pytest.raises(ValueError, match="1 events were never stored"):
        paced.latencies(paced.WRITE.pack(place, 0, 3, 100.0), iter([frame]), 1, 100.0)


def test_figures_are_written_for_people() -> None:
    assert [cell(one) for one in (None, True, 1_234, 0.123456, 12.5, 12_345.6, "a|b")] == [
        *("–", "yes", "1,234", "0.123", "12.50", "12,346", "a\\|b")
    ]
    assert [said(one) for one in ("rows_per_s", "cpu_s_per_million")] == ["rows/s", "CPU s/M"]


def test_all_goes_on_after_a_failure() -> None:
    ran: list[str] = []

    def run(name: str, options: Any) -> int:
        ran.append(name)
        return int(name == BENCHMARKS[1])

    assert everything.everything(["--runs", "1"], run) == [BENCHMARKS[1]]
    assert ran == [*BENCHMARKS, "report"]


def test_a_slope_is_found_within_its_interval() -> None:
    seconds = np.arange(0, 1_800, soak.SAMPLE_EVERY_S)
    noise = np.random.default_rng(5).normal(0, 1, len(seconds))
    for slope in (0.0, 20.0):
        rss = 200 + seconds / 3_600 * slope + noise + 50 * (seconds < soak.SETTLED_AFTER_S)
        found = soak.slope(seconds, rss)
        low, high = found["low"], found["high"]
        assert low is not None and high is not None
        assert low < slope < high < low + 5
    assert soak.slope(seconds[:70], seconds[:70])["slope_mib_per_h"] is None


@pytest.mark.parametrize("kind", growth.KINDS)
@pytest.mark.parametrize("keys", [1_000, 100_000])
def test_growing_states_count_right(kind: str, keys: int) -> None:
    state = growth.KINDS[kind](keys)
    for rows in state.frames(keys, filling=True):
        state.take(rows)
    for rows in state.frames(70_000, filling=False):
        state.take(rows)
    assert state.check(70_000) == 70_000
