"""The dashboard: screens that show snapshots and send requests. They never call Kafka.

feed.py collects (or replays) snapshots in a thread of its own and makes a Frame of each; app.py
shows the newest frame; keys.py is the one list of keys; views.py the one list of screens.
"""
