"""The dashboard: screens that show snapshots and send requests. They never call Kafka.

`feed` collects (or replays) snapshots in its own thread and makes a Frame of each; app.py shows the
newest frame; `screens` holds the only list of keys and the only list of screens.
"""
