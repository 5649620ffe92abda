"""The only guarded way for every change: permit, lock, read again, journal, act, verify."""
