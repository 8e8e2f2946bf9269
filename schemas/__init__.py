"""What happened: the wire contract of every system, and what is derived from it.

A system is a folder here: `topics.toml` declares its topics, `<record>.v<n>.avsc` its events
(one file per version; the newest is what readers use), `examples/` at least one event for each.
From them `headrace schemas generate` writes the folder's `events.py` and `asyncapi.json`, and
`headrace topics apply` makes Kafka and the registry so.

To change an event, add the next version beside the old one, with a default for each new field,
an example, and run `headrace schemas generate`; `headrace schemas check` names what would break.
To add a system, add its folder and its name to `schemas.catalog.SYSTEMS`.
"""
