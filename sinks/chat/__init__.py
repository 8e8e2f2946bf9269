"""Where conversations are stored; `reader` reads them, `presence` says who is there now.

`chat-history` (Cassandra) has every entry by conversation and page, so a page of history is one
slice. It is a fold without memory: each row comes from one event alone.
"""

from __future__ import annotations

import polars as pl

from streams.runtime.sink import ReadModel, Table

PAGE = 1_024
"""Entries that are stored together."""

ENTRIES = Table(
    "entries",
    key={"conversation_id": pl.String, "page": pl.Int64, "seq": pl.Int64},
    values={
        "change": pl.String,
        "by": pl.String,
        "of": pl.Int64,
        "client_msg_id": pl.String,
        "body": pl.String,
        "reply_to": pl.Int64,
        "members": pl.List(pl.String),
        "recorded_ms": pl.Int64,
    },
    bucket=("conversation_id", "page"),
    append=True,
)
"""All entries as they were decided: the transcript."""

REVISIONS = Table(
    "revisions",
    key={"conversation_id": pl.String, "page": pl.Int64, "of": pl.Int64},
    values={"seq": pl.Int64, "body": pl.String, "deleted": pl.Boolean, "recorded_ms": pl.Int64},
    bucket=("conversation_id", "page"),
)
"""Of every message that was edited or deleted, the last word: `page` is that of the message."""

CONVERSATIONS = Table(
    "conversations",
    key={"conversation_id": pl.String},
    values={
        "kind": pl.String,
        "title": pl.String,
        "owner": pl.String,
        "members": pl.List(pl.String),
        "members_seq": pl.Int64,
    },
    bucket=("conversation_id",),
)
"""Who is in it, since which entry."""

HEADS = Table(
    "heads",
    key={"conversation_id": pl.String},
    values={"last_seq": pl.Int64, "recorded_ms": pl.Int64},
    bucket=("conversation_id",),
)
"""The last entry of every conversation."""

MEMBERSHIPS = Table(
    "memberships",
    key={"user_id": pl.String, "conversation_id": pl.String},
    values={"since_seq": pl.Int64},
    bucket=("user_id",),
)
"""The conversations of everybody."""

MARKS = Table(
    "marks",
    key={"conversation_id": pl.String, "user_id": pl.String},
    values={"delivered": pl.Int64, "read": pl.Int64, "recorded_ms": pl.Int64},
    bucket=("conversation_id",),
)
"""How far everybody has received and read."""

HISTORY = ReadModel("chat-history", (ENTRIES, REVISIONS, CONVERSATIONS, HEADS, MEMBERSHIPS, MARKS))
