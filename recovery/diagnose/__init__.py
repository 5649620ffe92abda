"""The rules of verdicts: what a held partition or a transactional id suffers from."""
