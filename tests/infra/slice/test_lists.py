"""Editing the explicit lists: the place is right, the rest untouched, and no list is a sentence."""

from __future__ import annotations

import ast

import pytest

from infra.slice.lists import NoPlace, bound, strings, with_entry, with_import, with_line

SYSTEMS = ("b", "d")


@pytest.mark.parametrize(
    ("text", "name", "wanted"),
    [
        ('S = ("b", "d")\n', "a", ("a", "b", "d")),
        ('S = ("b", "d")\n', "c", ("b", "c", "d")),
        ('S: tuple[str, ...] = (\n    "b",  # first\n    "d",\n)\n', "e", ("b", "d", "e")),
        ('é = "é"; S = ("b", "d")\n', "c", ("b", "c", "d")),
    ],
)
def test_a_tuple_stays_sorted(text: str, name: str, wanted: tuple[str, ...]) -> None:
    changed = with_entry(text, "S", name, f'"{name}"', SYSTEMS)
    assert strings(changed, "S") == wanted
    assert len(changed) == len(text) + len(f'"{name}", ')
    assert changed.count("# first") == text.count("# first")


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("a", "health.r, a.w, b.w, b.r, d.r, last.r"),
        ("c", "health.r, b.w, b.r, c.w, d.r, last.r"),
        ("e", "health.r, b.w, b.r, d.r, e.w, last.r"),
    ],
)
def test_entries_of_no_system_stay_put(name: str, wanted: str) -> None:
    text = "R = (health.r, b.w, b.r, d.r, last.r)"
    assert with_entry(text, "R", name, f"{name}.w", SYSTEMS) == f"R = ({wanted})"


@pytest.mark.parametrize("name", ["a", "c", "e"])
def test_a_dict_keeps_its_order(name: str) -> None:
    text = 'D: dict[str, int] = {"overview": 0, "b": 1, "d": 2}'
    changed = with_entry(text, "D", name, f'"{name}": 3', SYSTEMS)
    node = ast.parse(changed).body[0]
    assert isinstance(node, ast.AnnAssign)
    assert node.value is not None
    made = ast.literal_eval(node.value)
    assert list(made) == ["overview", *sorted(["b", "d", name])]


def test_a_dict_that_a_function_yields_is_found() -> None:
    text = 'async def opened():\n    yield {"b": 1, "b-too": 2, "d": 3}\n'
    changed = with_entry(text, "opened", "c", '"c": 4', SYSTEMS)
    assert changed == text.replace('"d"', '"c": 4, "d"')


def test_an_import_line_goes_after_the_last() -> None:
    text = '"""Doc."""\nimport a\nfrom b import (\n    c,\n)\nX = 1\n'
    assert with_line(text, "import z") == text.replace(")\n", ")\nimport z\n")
    with pytest.raises(NoPlace, match="no imports"):
        with_line("X = 1\n", "import z")


@pytest.mark.parametrize("text", ["from p import b, d\n", "from p import (\n    b,\n    d,\n)\n"])
@pytest.mark.parametrize("name", ["a", "c", "e"])
def test_an_import_stays_sorted(text: str, name: str) -> None:
    (node,) = ast.parse(with_import(text, "p", name)).body
    assert isinstance(node, ast.ImportFrom)
    assert [one.name for one in node.names] == sorted(["b", "d", name])


@pytest.mark.parametrize(
    "text",
    ["", "T = ('b',)", "def f():\n    S = ('b',)\n", "S = sorted(x)", "S = ('z',)", "S = ()"],
)
def test_a_list_that_is_not_there_is_a_sentence(text: str) -> None:
    with pytest.raises(NoPlace, match="list S"):
        with_entry(text, "S", "c", '"c"', SYSTEMS)


def test_an_import_that_is_not_there_is_a_sentence() -> None:
    with pytest.raises(NoPlace, match="from p import"):
        with_import("from q import b\n", "p", "c")


def test_bound_names_are_those_of_the_top_level() -> None:
    text = (
        "import a.x\nimport b as c\nfrom d import e, f as g\nh = 1\ni: int = 2\n"
        "def j():\n    k = 1\nclass L: ...\nasync def m(): ...\n"
    )
    assert bound(text) == {"a", "c", "e", "g", "h", "i", "j", "L", "m"}
