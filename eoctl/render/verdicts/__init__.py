"""The sentences of verdicts: what they rest on, what they lead to, and what they refuse."""
