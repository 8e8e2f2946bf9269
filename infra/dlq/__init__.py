"""Dead letters: reading what was set aside, and sending it again.

`letters` reads one record, whoever wrote it (our workers, Kafka Connect, Kafka Streams, Spring);
`progress` is what a redrive remembers between runs; `redrive` sends.
"""
