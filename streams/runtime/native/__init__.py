"""The column reader: records as columns, without a Python object for each of them.

It is a small Rust library (`streams/native`) that works where it is built; without it the lane
reads through confluent-kafka's messages, with the same results. The split:

- the consumer is confluent-kafka's in both cases: group, settings, security, rebalance, pause,
  seek and commit are one piece of code. The library is a plugin of that same client and only
  empties the queues of its partitions (`feed`), or hands batches to a producer (`sending`);
- a run of records is a sequence of messages in both cases; here the messages are made only when
  somebody looks at one (`columns`);
- values of one flat schema (`streams.runtime.avro.flat`) are decoded without the GIL if every one
  is plainly good. Everything else goes through the decoder in Python, which holds the rules for
  what is wrong.
"""

from streams.runtime.native.available import Choice, ReaderMissing, available, wanted, why_not

__all__ = ["Choice", "ReaderMissing", "available", "wanted", "why_not"]
