"""Seal every change as a plan, and journal what became of it."""
