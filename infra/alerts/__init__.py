"""The evaluator of alert rules over the log: `headrace alerts`.

Every change of an alert is an event on `telemetry.alerts` before anybody is told of it; whom to
tell, in which groups, and who wants silence is Alertmanager's. Several evaluators may run: they
come to the same events, which the read model counts once, and Alertmanager knows one alert by its
labels.
"""
