"""Grafana dashboards as code: `queries` asks, `panels` draws, `overview` and `systems` arrange."""
