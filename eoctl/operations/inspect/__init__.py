"""`lso`, `txn list|describe|history`, `producers`, `offsets`: show facts side by side."""
