"""Answers as people and scripts see them: tables, words, pages, JSON."""
