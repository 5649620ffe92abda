"""`state`: rebuild, show, compare and deliver states."""
