"""`bench nexmark`: seven queries of Nexmark on Headrace, Kafka Streams and Flink."""
