"""Every benchmark, in the order in which `bench all` runs them: `tests.bench.<name>`."""

from infra.cli import bench

VERBS = tuple(bench.BENCHMARKS)
"""What `headrace bench` takes."""
BENCHMARKS = tuple(name for name in VERBS if name not in {"all", "report"})
