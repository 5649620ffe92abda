"""The frame of every job: its session, its entry point, and our code on Spark's executors."""
