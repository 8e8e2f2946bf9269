"""The lane: brings one agent its batches and carries its writes to the sink.

`reader` polls Kafka in a thread and cuts spans of one partition; `pump` turns a span into a
fenced write (decode, fold, store, commit); `service` joins both to a Faust agent.
"""
