"""Launch recovery jobs on Spark, follow, list and cancel them."""
