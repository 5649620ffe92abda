"""The one guarded path of every change: permit, lock, read again, journal, act, verify."""
