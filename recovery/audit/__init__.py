"""Audits: sequences, transactions, duplicates and mirrors, judged from columns of records."""
