"""Opening a sink by the name of its store, and the models that no store can hold."""

from __future__ import annotations

import polars as pl
import pytest

from sinks.drivers.cassandra import ddl as cassandra
from sinks.drivers.clickhouse import ddl
from sinks.drivers.rows import supported
from sinks.drivers.s3 import names
from sinks.open import STORES, open_sink
from streams import catalog
from streams.runtime.settings import Settings
from streams.runtime.sink import Ranking, ReadModel, Table
from tests.drivers.model import TOPIC, at, read_model, span
from tests.drivers.rigs import cassandra_settings


@pytest.mark.stack
@pytest.mark.parametrize("store", STORES)
def test_every_store_opens(store: str) -> None:
    model = read_model(rankings=False)
    settings = Settings.read().model_copy(update={"cassandra": cassandra_settings()})
    one, two = (open_sink(store, model, settings) for _ in range(2))
    one.prepare(2)
    one.write(2, span(None, 1))
    assert two.load(2, TOPIC, 0) == at(1)
    one.drop(2)
    assert two.versions() == []
    one.close()
    two.close()


def test_an_unknown_store_is_named() -> None:
    with pytest.raises(
        ValueError, match="no store 'excel'; there are memory, redis, clickhouse, cassandra, s3"
    ):
        open_sink("excel", read_model(rankings=False), Settings())


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (Table("t", {"k": pl.Int64}, {"v": pl.Datetime}), "Datetime.* cannot be stored"),
        (Table("t", {"k": pl.Int64}, {"v": pl.Decimal(10, 2)}), "cannot be stored"),
        (Table("t", {"k": pl.Float64}, {}), "floats and lists are no keys"),
        (Table("t", {"a": pl.Int64, "b": pl.Int64}, {}, bucket=("b",)), "no prefix"),
        (Table("t", {"a": pl.Int64, "b": pl.Int64}, {}, bucket=("a",), time="b"), "no Int64 of"),
        (Table("t", {"a": pl.String}, {}, bucket=("a",), time="a"), "no Int64 of the bucket"),
        (Ranking("t", {"day": pl.Int32}, "who", time="day"), "no Int64 of the bucket"),
    ],
)
def test_models_without_an_exact_text_are_refused(table: Table | Ranking, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        supported(ReadModel("m", (table,)))


@pytest.mark.parametrize("system", catalog.SYSTEMS)
def test_every_read_model_fits_its_store(system: str) -> None:
    for projection in catalog.load(system).projections:
        supported(projection.model)
        assert projection.store in STORES
        if projection.store == "clickhouse":
            ddl.checked(projection.model)
            assert not projection.restores, "its rows may be ahead of the position"
        if projection.store == "s3":
            names.checked(projection.model)
        if projection.store == "cassandra":
            cassandra.checked(projection.model)
