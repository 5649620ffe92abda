"""Combining records into a state: formats, last value per key, digest. Pure; numpy and pyarrow."""
