"""What must be known to read the figures; part of the result file."""

from __future__ import annotations

NOTES = (
    "Topic: bids alone, as the queries read nothing else; Avro in Confluent's framing, keyed by "
    "auction, four partitions, event time forward. Watermark: dateTime - 4 s in all engines.",
    "Output: Flink and Kafka Streams add their results up and throw them away (Nexmark's "
    "blackhole). Headrace stores its results in Valkey under its fence, with its position, and "
    "only for q0 and q13, where every bid is a result, throws them away too.",
    "Guarantees: Headrace's stored results are exact after a crash. Flink's state is checkpointed "
    "every 10 s, which a run of a few seconds hardly sees. Kafka Streams is at least once, with "
    "changelogs, and commits every 10 s.",
    "Clock: Flink and Kafka Streams from their first record, Headrace from the moment its last "
    "partition was located, to the last result. JVM start, planning and the forming of groups are "
    "outside of it; `process_cpu_s_per_million` holds start-up too, for all.",
    "q5, q7: the maximum is over all auctions. Flink shuffles; Headrace and Kafka Streams find the "
    "maximum of a partition and the reader of the results takes the greatest of the partitions. "
    "Headrace's clock includes that read. Headrace stores a window when it has ended, so of the "
    "last four seconds and the windows open then it gives nothing; the peers give all.",
    "q11, q12: by bidder, while the topic is keyed by auction. Flink shuffles, Kafka Streams goes "
    "through a repartition topic, Headrace folds sessions and counts by bidder within a partition "
    "and its reader merges them (exact: sessions are joined where they touch); its clock includes "
    "that. A topic keyed by bidder would spare Kafka Streams the repartition.",
    "q7: Flink's figure is for the published SQL, whose join keeps every bid; `flink-variant` is a "
    "window top-N, which does not.",
    "q11 on Kafka Streams: sessions in one row of a key-value store, since the DSL's session "
    "windows took twice the CPU without their cache and nine times with it (100,000 bids). Grace "
    "is a day: the repartition topic mixes partitions that are read at different speeds, so with "
    "four seconds bids would be dropped.",
    "q12: processing time, so only sums are compared. Flink gives out no such window at the end "
    "of its input: its clock stops when the last bid is decoded. Headrace's folds may not read the "
    "clock; this one does, for the measurement alone.",
    "q13: the side input is an array in memory in all three; Flink reads it through a lookup join.",
    "Flink reads bids with decoding by hand, only the columns a query reads, faster than its own "
    "Avro format, with watermarks by partition; Kafka Streams with the same decoder.",
)
