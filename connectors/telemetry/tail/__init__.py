"""A log agent: follows files, keeps what it read on disk, sends it, and forgets it when it is safe.

    files → spool (disk) → parse, rules → log

- `follow`: which bytes of which file are new: rotation, truncation, copy-and-truncate.
- `spool`: the buffer on disk. What it holds says how far each file was read, so that reading and
  remembering are one write: a `kill -9` anywhere loses no line and reads none twice.
- `ship`: takes batches off the spool and sends them until they are confirmed.

A line's id is made of the file's identity and the line's place in it, so a batch that is sent
again after a crash is the same lines, and stored once. While the log cannot be reached the spool
fills up; when it is full the files are read no further, which is all the backpressure there is: the
lines wait where they were written. Lost is only what is deleted before it was read.
"""
