"""`lso`, `txn list|describe|history`, `producers`, `offsets`: facts, side by side."""
