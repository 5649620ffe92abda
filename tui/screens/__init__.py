"""The screens and pages; each turns values into lines."""
