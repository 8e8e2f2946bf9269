"""The least sink that keeps the contract of `write`, `load` and `rows`: a dict per table."""

from __future__ import annotations

import polars as pl

from streams.runtime.sink import Delete, FenceRefused, Upsert


class Recorder:
    def __init__(self, model):
        self.model = model
        self.tables = {table.name: {} for table in model.tables}
        self.position = None
        self.writes = []

    def prepare(self, version):
        self.version = version

    def load(self, version, topic, partition):
        return self.position

    def write(self, version, write):
        if write.expected != self.position:
            raise FenceRefused(f"expected {write.expected}, stored {self.position}")
        for change in write.changes:
            rows, key = self.tables[change.table.name], list(change.table.key)
            keys = change.rows.select(key).rows()
            if isinstance(change, Delete):
                for k in keys:
                    rows.pop(k, None)
            elif isinstance(change, Upsert):
                columns = list(change.table.columns)
                rows |= dict(zip(keys, change.rows.select(columns).rows(), strict=True))
        self.position = write.position
        self.writes.append(write)

    def rows(self, version, table, partition=None):
        schema = self.model.table(table).columns
        yield pl.DataFrame(list(self.tables[table].values()), schema=schema, orient="row")
