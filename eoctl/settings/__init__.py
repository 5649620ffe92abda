"""Settings: contexts, their files, and the folders in which eoctl keeps things."""
