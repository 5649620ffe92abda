"""`doctor`: collect what its rules need in a bounded number of requests, and judge."""
