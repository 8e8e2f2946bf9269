"""Rebuild: a new version of a read model from the log, beside the one that answers.

Fold version n + 1 from the log's start, never ahead of version n; seal n, so that both stand at
the same positions; compare; switch readers and writers; drop n. Reads are answered all the time,
first from n, then from n + 1, and never go back in time; only freshness pauses between seal and
switch. Interrupted before the seal, it goes on where it stopped; after it, `abort` or the next
rebuild lifts the seal.
"""

from streams.runtime.rebuild.rebuild import Differs, Progress, Rebuild, Report, abort

__all__ = ["Differs", "Progress", "Rebuild", "Report", "abort"]
