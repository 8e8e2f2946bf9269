"""A snapshot of suggestions: an immutable trie over sorted terms, packed into one Arrow file.

Every node with more than `LEAF` terms below it has its best `LISTED` with it, so a look-up costs a
step a letter and no walk below; where there are fewer terms, they are read and sorted. So there are
few nodes (one for some hundred terms), and a long prefix ends in a binary search. The file
is mapped, not read: processes on one machine share its pages, and to swap is to point elsewhere.

Terms are in the order of their code points. Letters are code points, too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa
from rapidfuzz.distance import OSA

ONE: Final = 1 << 20
"""The score of one search that was made just now."""
TERMS: Final = {"term": pl.String, "text": pl.String, "score": pl.Int64}
"""What an index is built of: what is typed, what is shown, and the rank."""
LISTED: Final = 32
LEAF: Final = 256
DEPTH_MAX: Final = 24
"""Letters a path has at most; what is longer is searched for among the terms below."""
NEAR_CHARS_MIN: Final = 3
"""Of a shorter prefix, everything is one edit away."""
FORMAT: Final = b"headrace-typeahead-1"
_END: Final = b"\xff"
"""Above every byte of UTF-8."""


class BadSnapshot(ValueError):
    """The file is not a snapshot of this format."""


@dataclass(frozen=True, slots=True)
class Span:
    """Terms `[low, high)`; `listed` is the place of their best in the lists, or -1."""

    low: int
    high: int
    listed: int


def build(terms: pl.DataFrame) -> bytes:
    """The file of these terms (`TERMS`, each term once). The same terms make the same bytes."""
    terms = terms.select(*TERMS).sort("term")
    shown = pl.when(pl.col("text") != pl.col("term")).then("text").alias("text")
    terms = terms.with_columns(shown)
    arrays: dict[str, Any] = {
        "term": pa.array(terms["term"].to_list(), pa.string()),
        "text": pa.array(terms["text"].to_list(), pa.string()),
        "score": pa.array(terms["score"].to_numpy(), pa.int64()),
        **{name: pa.array(values) for name, values in _nodes(terms).items()},
    }
    columns = {
        name: pa.LargeListArray.from_arrays(pa.array([0, len(values)], pa.int64()), values)
        for name, values in arrays.items()
    }
    row = pa.table(columns).replace_schema_metadata({b"format": FORMAT})
    out = pa.BufferOutputStream()
    with pa.ipc.new_file(out, row.schema) as file:
        file.write_table(row)
    return bytes(out.getvalue())


def _nodes(terms: pl.DataFrame) -> dict[str, Any]:
    """The trie, level by level and each level in the order of its prefixes, so that the children
    of a node, `[first[n], first[n + 1])`, lie together and in order.
    """
    rows = terms.select(pl.int_range(pl.len(), dtype=pl.UInt32).alias("row"), "term", "score")
    best = rows.sort("score", "row", descending=[True, False])
    level = pl.DataFrame({"prefix": [""], "low": [0], "size": [terms.height]})
    levels, lists = [], []
    for depth in range(DEPTH_MAX + 1):
        levels.append(level)
        inner = level.filter(pl.col("size") > LEAF).select("prefix")
        if not inner.height:
            break
        prefix = pl.col("term").str.slice(0, depth).alias("prefix")
        best = best.with_columns(prefix).join(inner, on="prefix", maintain_order="left")
        lists.append(
            best.group_by("prefix").head(LISTED).sort("prefix", maintain_order=True)["row"]
        )
        longer = best.filter(pl.col("term").str.len_chars() > depth)
        longer = longer.with_columns(pl.col("term").str.slice(0, depth + 1).alias("prefix"))
        level = (
            longer.group_by("prefix")
            .agg(
                pl.col("row").min().alias("low").cast(pl.Int64),
                pl.len().cast(pl.Int64).alias("size"),
            )
            .sort("prefix")
        )
        best = best.drop("prefix")
    nodes = pl.concat(levels)
    inside = nodes["size"] > LEAF
    return {
        "letter": np.array([ord(p[-1:] or "\0") for p in nodes["prefix"]], np.uint32),
        "low": nodes["low"].to_numpy().astype(np.uint32),
        "high": (nodes["low"] + nodes["size"]).to_numpy().astype(np.uint32),
        "first": _first(nodes["prefix"]),
        "listed": np.where(inside, inside.cum_sum().cast(pl.Int32) - 1, -1).astype(np.int32),
        "best": np.concatenate([one.to_numpy() for one in lists] or [np.zeros(0, np.uint32)]),
    }


def _first(prefixes: pl.Series) -> Any:
    """Where the children of each node begin, and an end behind the last."""
    frame = prefixes.alias("prefix").to_frame().with_row_index("node")
    parents = frame.slice(1).with_columns(pl.col("prefix").str.head(-1))
    children = parents.group_by("prefix").agg(pl.len().alias("children"))
    counts = frame.join(children, on="prefix", how="left", maintain_order="left")["children"]
    return np.concatenate([[1], 1 + counts.fill_null(0).cum_sum().to_numpy()]).astype(np.uint32)


class Index:
    """A snapshot that is answered from. Immutable; a read costs microseconds."""

    def __init__(self, path: Path) -> None:
        """Map the file. Raises `BadSnapshot`, and `OSError` where it cannot be read."""
        try:
            file = pa.ipc.open_file(pa.memory_map(str(path)))
            if (file.schema.metadata or {}).get(b"format") != FORMAT:
                raise BadSnapshot(f"{path.name} has another format")
            row = file.get_batch(0)
        except pa.ArrowInvalid as error:
            raise BadSnapshot(f"{path.name}: {error}") from error
        column = {name: row.column(name).values for name in row.schema.names}
        self._terms = _Texts(column["term"])
        self._shown = _Texts(column["text"])
        self._score = column["score"].to_numpy()
        self._best = column["best"].to_numpy()
        # What is looked at one by one: a view answers with plain integers, an array does not.
        self._letter, self._first, self._low, self._high, self._listed = (
            memoryview(column[name].to_numpy())
            for name in ("letter", "first", "low", "high", "listed")
        )

    def __len__(self) -> int:
        return len(self._terms)

    def term(self, row: int) -> str:
        """What is typed for it, in full."""
        return self._terms[row].decode()

    def text(self, row: int) -> str:
        """How it is shown."""
        return self._shown[row].decode() or self.term(row)

    def score(self, row: int) -> int:
        """Its rank: the higher the better."""
        return int(self._score[row])

    def row(self, term: str) -> int | None:
        """The row of a term; None where it is not in the snapshot."""
        key = term.encode()
        row = bisect_left(self._terms, key, 0, len(self))
        return row if row < len(self) and self._terms[row] == key else None

    def best(self, prefix: str, k: int) -> list[int]:
        """The rows of the `k` best terms that begin with `prefix`, best first."""
        found = self._find(prefix)
        return [] if found is None else self._top(found, k)

    def near(self, prefix: str, k: int) -> list[int]:
        """The rows of the `k` best terms that begin with something one edit away from `prefix`: a
        letter too much, too little or another, or two that changed places. The first letter is
        taken to be right. Empty for a prefix too short to be wrong.
        """
        if len(prefix) < NEAR_CHARS_MIN:
            return []
        rows = {row for span in self._near(prefix) for row in self._top(span, k)}
        rows |= set(self._near_in_leaf(prefix))
        return sorted(rows, key=lambda row: (-self._score[row], row))[:k]

    def _child(self, node: int, letter: str) -> int | None:
        begin, end = self._first[node], self._first[node + 1]
        at = bisect_left(self._letter, ord(letter), begin, end)
        return at if at < end and self._letter[at] == ord(letter) else None

    def _find(self, prefix: str, node: int = 0, depth: int = 0) -> Span | None:
        """The terms that begin with `prefix`, from a node on whose path has `depth` letters."""
        while depth < len(prefix) and self._first[node] < self._first[node + 1]:
            child = self._child(node, prefix[depth])
            if child is None:
                return None
            node, depth = child, depth + 1
        low, high = self._low[node], self._high[node]
        if depth == len(prefix):
            return Span(low, high, self._listed[node])
        key = prefix.encode()
        low = bisect_left(self._terms, key, low, high)
        high = bisect_left(self._terms, key + _END, low, high)
        return Span(low, high, -1) if low < high else None

    def _top(self, span: Span, k: int) -> list[int]:
        if span.listed >= 0 and k <= LISTED:
            at = span.listed * LISTED
            return self._best[at : at + k].tolist()  # type: ignore[no-any-return]
        scores = self._score[span.low : span.high]
        if k < len(scores) > LEAF:
            among = np.argpartition(-scores, k - 1)[:k]
            among.sort()
        else:
            among = np.arange(len(scores))
        order = among[np.argsort(-scores[among], kind="stable")][:k]
        return (order + span.low).tolist()  # type: ignore[no-any-return]

    def _path(self, prefix: str) -> Iterator[int]:
        """The nodes of the prefix' letters, from the root on, as far as there are any."""
        node: int | None = 0
        for letter in prefix:
            if node is None:
                return
            yield node
            node = self._child(node, letter)

    def _near(self, prefix: str) -> Iterator[Span]:
        """The spans of edits at letters that the trie has nodes for."""
        for depth, node in enumerate(self._path(prefix)):
            if not depth or self._first[node] == self._first[node + 1]:
                continue
            for variant in self._variants(prefix, depth, node):
                found = self._find(variant, node, depth)
                if found is not None:
                    yield found

    def _variants(self, prefix: str, at: int, node: int) -> Iterable[str]:
        head, tail = prefix[:at], prefix[at:]
        yield head + tail[1:]
        if len(tail) > 1 and tail[0] != tail[1]:
            yield head + tail[1] + tail[0] + tail[2:]
        for child in range(self._first[node], self._first[node + 1]):
            letter = chr(self._letter[child])
            if letter != tail[0]:
                yield head + letter + tail[1:]
                yield head + letter + tail

    def _near_in_leaf(self, prefix: str) -> Iterator[int]:
        """The rows of edits behind the last node: its few terms are compared one by one."""
        *_, node = self._path(prefix)
        if self._first[node] < self._first[node + 1]:
            return
        for row in range(self._low[node], self._high[node]):
            term = self.term(row)
            if term[0] == prefix[0] and any(
                OSA.distance(prefix, term[: len(prefix) + more], score_cutoff=1) <= 1
                for more in (0, -1, 1)
            ):
                yield row


class _Texts:
    """An Arrow array of strings as a sequence of UTF-8 bytes, empty for null."""

    def __init__(self, array: Any) -> None:
        _, offsets, data = array.buffers()
        self._at = memoryview(offsets).cast("i")
        self._data = memoryview(data) if data is not None else memoryview(b"")
        self._length = len(array)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, row: int) -> bytes:
        return bytes(self._data[self._at[row] : self._at[row + 1]])
