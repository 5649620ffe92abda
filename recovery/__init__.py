"""The knowledge: offsets, batches, transactions, verdicts, plans. No socket, file or clock."""
