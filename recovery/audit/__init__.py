"""Audit sequences, transactions, duplicates and mirrors from columns of records."""
