"""How logs and metrics enter: OTLP, Prometheus remote write, and files that are followed."""
