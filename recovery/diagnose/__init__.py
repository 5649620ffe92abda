"""Judge what a held partition or a transactional id suffers from, by tables of rules."""
