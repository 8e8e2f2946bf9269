"""Everything the dashboards ask, in one place: PromQL by selector, and ClickHouse SQL.

`labels` is always the label selector of a dashboard: `SELECT_ANY` or that of `select_system`.
Grafana replaces `$__rate_interval`, `$__timeFilter(...)` and the variables.
"""

from __future__ import annotations

SELECT_ANY = 'system=~"$system",agent=~"$agent"'
GROUP_ANY = 'consumergroup=~"$agent"'


def select_system(system: str) -> tuple[str, str]:
    """Selectors of one system: for Headrace's own metrics, and for consumer groups."""
    return f'system="{system}"', f'consumergroup=~"{system}(-.+)?"'


def rate(metric: str, by: str, labels: str) -> str:
    """Events a second of a counter, summed by labels."""
    return f"sum by ({by}) (rate({metric}{{{labels}}}[$__rate_interval]))"


def quantile(q: float, histogram: str, by: str, labels: str) -> str:
    """A quantile of a histogram, in its unit."""
    by = f"{by}, le" if by else "le"
    return f"histogram_quantile({q}, {rate(f'{histogram}_bucket', by, labels)})"


def mean(histogram: str, by: str, labels: str) -> str:
    """The mean of a histogram, in its unit."""
    return f"{rate(f'{histogram}_sum', by, labels)} / {rate(f'{histogram}_count', by, labels)}"


def happened(metric: str, labels: str) -> str:
    """How often in the time shown, 0 where the series does not exist yet."""
    return f"sum(increase({metric}{{{labels}}}[$__range])) or vector(0)"


def error_ratio(labels: str) -> str:
    """The share of requests answered 5xx, 0 while none was."""
    failed = rate("http_server_request_duration_seconds_count", "", f'{labels},status=~"5.."')
    every = rate("http_server_request_duration_seconds_count", "", labels)
    return f"({failed} or vector(0)) / {every}"


# The view shows table `events` of read model `ads-events` (live version, duplicates removed).
ADS_SQL = {
    "counted": """
SELECT $__timeInterval(event_time) AS time,
       countIf(kind = 'impression') AS impressions,
       countIf(kind = 'click') AS clicks
FROM ads_events_events
WHERE $__timeFilter(event_time) AND fate = 'applied'
GROUP BY time ORDER BY time
""",
    "fates": """
SELECT $__timeInterval(event_time) AS time, fate, count() AS events
FROM ads_events_events
WHERE $__timeFilter(event_time)
GROUP BY time, fate ORDER BY time, fate
""",
    "campaigns": """
SELECT campaign_id,
       countIf(kind = 'impression') AS impressions,
       countIf(kind = 'click') AS clicks,
       if(impressions = 0, NULL, clicks / impressions) AS click_through,
       sum(cost_micros) / 1e6 AS cost
FROM ads_events_events
WHERE $__timeFilter(event_time) AND fate = 'applied'
GROUP BY campaign_id ORDER BY cost DESC, campaign_id LIMIT 20
""",
    "countries": """
SELECT country, count() AS clicks, uniq(user_id) AS users
FROM ads_events_events
WHERE $__timeFilter(event_time) AND fate = 'applied' AND kind = 'click'
GROUP BY country ORDER BY clicks DESC, country LIMIT 20
""",
    "refused": """
SELECT campaign_id, fate, count() AS events, max(event_time) AS latest
FROM ads_events_events
WHERE $__timeFilter(event_time) AND fate != 'applied'
GROUP BY campaign_id, fate ORDER BY events DESC, campaign_id, fate LIMIT 20
""",
}

# Views of `telemetry-rollups`, `telemetry-logs` and `telemetry-samples` (live versions).
TELEMETRY_SQL = {
    "lines": """
SELECT fromUnixTimestamp64Milli(minute_ms) AS time, level, sum(weight) AS lines
FROM telemetry_rollups_minutes
WHERE $__timeFilter(fromUnixTimestamp64Milli(minute_ms))
GROUP BY time, level ORDER BY time, level
""",
    "services": """
SELECT service, sum(weight) AS lines, sumIf(weight, level IN ('ERROR', 'FATAL')) AS errors,
       errors / lines AS error_share
FROM telemetry_rollups_hours
WHERE $__timeFilter(fromUnixTimestamp64Milli(hour_ms))
GROUP BY service ORDER BY errors DESC, lines DESC, service LIMIT 20
""",
    "late": """
SELECT toStartOfHour(event_time) AS time, service, count() AS late_lines
FROM telemetry_logs_lines
WHERE $__timeFilter(event_time) AND late
GROUP BY time, service ORDER BY time, service
""",
    "errors": """
SELECT event_time AS time, service, level, body, trace_id
FROM telemetry_logs_lines
WHERE $__timeFilter(event_time) AND level IN ('ERROR', 'FATAL')
ORDER BY event_time DESC LIMIT 100
""",
    "series": """
SELECT name, count() AS series, max(fromUnixTimestamp64Milli(assumeNotNull(declared_ms))) AS newest
FROM telemetry_samples_series
GROUP BY name ORDER BY series DESC, name LIMIT 20
""",
}
