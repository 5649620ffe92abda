"""The screens and pages, each from values to lines."""
