"""The frame of every job: its session, its words, and our code on Spark's executors."""
