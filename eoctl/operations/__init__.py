"""The use cases: collect facts, let `recovery` judge, act. CLI, dashboard and cron call these."""
