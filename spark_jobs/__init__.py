"""Jobs that run on Spark: one module per job, the data source, and the sink."""
