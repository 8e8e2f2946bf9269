"""Reactors: agents that call the outside world, at least once, and record what came of it.

Read `rules` first (what a system writes: `Reactor`, `Handler`), then `core` (what becomes of a
task), made of `admission`, `breaker` and `wire`; `offsets` (what may be committed); `engine` (the
same with an event loop and a log); `reader`, `outlet`, `service` (Kafka and Faust). `limits` has
rate limits for handlers, `testing` a harness for their rule tests.
"""
