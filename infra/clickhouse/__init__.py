"""ClickHouse for one machine: the HTTP protocol over the chDB engine.

`python -m infra.clickhouse --data DIR --port P` serves one data directory. The engine is ClickHouse
itself, in a wheel; what is here is only the way in. The product speaks to it as it speaks to a
ClickHouse cluster, with clickhouse-connect over HTTP, and cannot tell which one it has, except for:

Not supported
    - Sessions: `session_id` is accepted and has no effect. Settings and temporary tables last for
      one request.
    - ClickHouse's own block compression (`compress=1`, `decompress=1`) and the `br` coding. HTTP
      codings gzip, deflate, lz4 (frame) and zstd work both ways.
    - External tables and other multipart bodies (`external_data`, `form_encode_query_params`).
    - INSERT ... SELECT FROM input(...), FROM INFILE and INTO OUTFILE: refused, never ignored.
    - Parameters (`param_x`) in an INSERT that carries data in a FORMAT. DEFAULT and parameters in
      VALUES past 1 MiB of request.
    - Users, roles, quotas: one account. TLS, the native protocol, clusters, replication.
    - Progress headers. `X-ClickHouse-Summary` counts the first two blocks when a result is sent in
      pieces.

Different
    - The engine names its queries itself. The caller's `query_id` is `log_comment` in
      `system.processes`: `KILL QUERY WHERE Settings['log_comment'] = '<query_id>'`. A caller's own
      `log_comment` is dropped.
    - Results in Native, TSV, CSV, JSONEachRow, RowBinary and the like, and in ArrowStream, are sent
      block by block. All other formats (Arrow, Parquet, JSON, ...WithNames) are held in memory,
      at most 512 MiB of them; more fails with code 396.
    - A request body is received whole before the engine sees it, in memory up to 16 MiB and in a
      file beyond; 1 GiB at most (413), in 60 s at most (408). Half a body inserts nothing. The data
      of an INSERT is copied to an unnamed file beside the data directory's tables.
    - An INSERT writes its blocks in order, on one thread, unless it sets `max_insert_threads`. When
      one fails, what is left is a beginning of the data in whole blocks (often none), and the same
      deduplication token completes it. As on the server, a table keeps the block on which one of
      its materialized views failed.
    - A query is limited to 4 GiB of memory where it sets no `max_memory_usage`; the text of one to
      1 MiB (and by the engine's own `max_query_size`).
    - Inserts into one table run one after the other.
    - `written_rows` counts rows received, also those a deduplication token dropped.
    - `file()`, `url()` and the like reach what the process can reach.

A server without a password answers only on a loopback address, and no web page (`Origin`).
"""
