"""The knowledge: offsets, batches, transactions, verdicts, plans. Pure: no socket, no file, no clock."""
