"""Recovery jobs: launched on Spark, followed, listed, cancelled."""
