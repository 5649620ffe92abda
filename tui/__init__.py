"""The dashboard: screens that show snapshots and send requests. They never call Kafka.

`feed` collects (or replays) snapshots in a thread of its own and makes a Frame of each; app.py
shows the newest frame; `screens` has the one list of keys and the one list of screens.
"""
