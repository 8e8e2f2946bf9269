"""Where an INSERT's data begins, and what a query's text tells."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.clickhouse.errors import ServerError
from infra.clickhouse.statement import Insert, Query, full_name, parse


@pytest.mark.parametrize(
    ("sql", "fmt"),
    [
        ("SELECT 1", None),
        ("SELECT 1 FORMAT JSON", "JSON"),
        ("select 1 format TSV settings max_threads = 1", "TSV"),
        ("SELECT 1 FORMAT Native;", "Native"),
        ("SELECT 'a''b\\'c FORMAT x' FORMAT CSV -- FORMAT y", "CSV"),
        ("SELECT format, 1", None),
        ("SELECT format FROM t", None),
        ("SELECT format('{}', a) FROM t", None),
        ("SELECT (SELECT 1 FORMAT JSON)", None),
        ("/* FORMAT a */ WITH 1 AS x SELECT x", None),
    ],
)
def test_output_format(sql: str, fmt: str | None) -> None:
    assert parse(sql.encode()) == Query(format=fmt, reads_only=True, selects=True)


@pytest.mark.parametrize(
    ("sql", "reads_only", "selects"),
    [
        ("SHOW TABLES", True, False),
        ("DESCRIBE TABLE t", True, False),
        ("(SELECT 1) UNION ALL (SELECT 2)", True, True),
        ("CREATE TABLE t (a UInt8) ENGINE = Memory", False, False),
        ("WITH 1 AS x INSERT INTO t SELECT x", False, False),
        ("-- SELECT\nDROP TABLE t", False, False),
    ],
)
def test_kind(sql: str, reads_only: bool, selects: bool) -> None:
    assert parse(sql.encode()) == Query(reads_only=reads_only, selects=selects)


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (
            "INSERT INTO `a b`.t (x, `format`) SETTINGS a=1 FORMAT Native\n",
            ("INSERT INTO `a b`.t (x, `format`)", "SETTINGS a=1", "`a b`.t", "Native"),
        ),
        ("insert into t format CSV\r\n", ("insert into t", "", "t", "CSV")),
        ("insert into t FORMAT CSV;\n", ("insert into t", "", "t", "CSV")),
        (
            "INSERT INTO settings (settings) settings b = 'FORMAT x' VALUES",
            ("INSERT INTO settings (settings)", "settings b = 'FORMAT x'", "settings", "Values"),
        ),
        ("INSERT INTO TABLE d . t VALUES", ("INSERT INTO TABLE d . t", "", "d.t", "Values")),
        ("insert into values (a) values", ("insert into values (a)", "", "values", "Values")),
        ("insert into format format TSV ", ("insert into format", "", "format", "TSV")),
        (
            "INSERT INTO FUNCTION remote('h', d.t) (a) FORMAT TSV\n",
            ("INSERT INTO FUNCTION remote('h', d.t) (a)", "", "remote", "TSV"),
        ),
    ],
)
@given(data=st.binary(max_size=40))
def test_insert_is_split_before_its_data(
    head: str, expected: tuple[str, str, str, str], data: bytes
) -> None:
    data = b"\x01" + data  # a data byte that is no white space and no letter
    statement = parse(head.encode() + data)
    assert isinstance(statement, Insert)
    read = (
        statement.target,
        statement.settings,
        statement.table.encode(),
        statement.format.encode(),
    )
    assert tuple(part.decode().strip() for part in read) == expected
    assert (head.encode() + data)[statement.data_offset :] == data


def test_an_insert_reads_its_data_from_a_file() -> None:
    statement = parse(b"INSERT INTO t (a) SETTINGS b = 1 FORMAT CSV\n1\n")
    assert isinstance(statement, Insert)
    expected = b"INSERT INTO t (a) FROM INFILE '/dev/fd/7' SETTINGS b = 1 FORMAT CSV"
    assert b" ".join(statement.from_file("/dev/fd/7").split()) == expected


@pytest.mark.parametrize(
    ("sql", "table"),
    [("INSERT INTO t SELECT 1", "t"), ("insert into d.t (a) with 1 as x select x", "d.t")],
)
def test_insert_from_select_is_a_query(sql: str, table: str) -> None:
    assert parse(sql.encode()) == Query(table=table)


@pytest.mark.parametrize("table", ["t", "`t`", '"t"', "d.t", "`d`.t", '"d"."t"', "d . t"])
def test_a_table_has_one_name(table: str) -> None:
    assert full_name(table, "d") == "d.t"


@pytest.mark.parametrize("sql", ["", "  ", "-- nothing", "/* open"])
def test_empty_query(sql: str) -> None:
    with pytest.raises(ServerError) as failure:
        parse(sql.encode())
    assert (failure.value.code, failure.value.status) == (62, 400)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1 INTO OUTFILE 'x'",
        "INSERT INTO t FROM INFILE 'x' FORMAT CSV",
        "INSERT INTO t SELECT a FROM input('a UInt8') FORMAT CSV 1",
    ],
)
def test_what_the_server_cannot_do_is_refused(sql: str) -> None:
    with pytest.raises(ServerError) as failure:
        parse(sql.encode())
    assert (failure.value.code, failure.value.status) == (48, 501)


@given(text=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(text: bytes) -> None:
    try:
        statement = parse(b"INSERT INTO t FORMAT CSV\n" + text)
    except ServerError as error:
        pytest.fail(f"data was read as SQL: {error}")
    assert isinstance(statement, Insert)
    try:
        parse(text)
    except ServerError as error:
        assert error.status in {400, 501}
