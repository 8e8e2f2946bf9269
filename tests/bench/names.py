"""Every benchmark, in the order in which `bench all` runs them: `tests.bench.<name>`."""

BENCHMARKS = (
    *("lane", "latency", "decider", "commands", "notifications", "rebuild"),
    *("paced", "scale", "footprint", "soak"),
)
