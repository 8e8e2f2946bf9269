"""Prometheus and Alertmanager: where they scrape, what they record, when they warn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent


def render(
    targets: Path,
    *,
    alertmanager: str | None = None,
    remote_read: tuple[str, Path] | None = None,
) -> str:
    """`prometheus.yml` with absolute paths, for a server started elsewhere.

    `targets` is the folder of `file_sd` files that workers and the API write; `alertmanager` is
    `host:port`, or None to send alerts nowhere. `remote_read` is the address of the API's samples,
    and the file with the token to read them: with it PromQL reaches what `telemetry` keeps.
    """
    config: dict[str, Any] = yaml.safe_load((HERE / "prometheus.yml").read_text())
    config["rule_files"] = [str(HERE / "rules" / "*.yml")]
    for scrape in config["scrape_configs"]:
        for discovery in scrape["file_sd_configs"]:
            discovery["files"] = [str(targets.resolve() / "*.json")]
    if remote_read is not None:
        url, token = remote_read
        credentials = {"credentials_file": str(token.resolve())}
        # Asked for all times: what Prometheus scraped itself is another thing.
        config["remote_read"] = [{"url": url, "authorization": credentials, "read_recent": True}]
    if alertmanager is None:
        del config["alerting"]
    else:
        config["alerting"]["alertmanagers"][0]["static_configs"] = [{"targets": [alertmanager]}]
    return yaml.safe_dump(config, sort_keys=False)
