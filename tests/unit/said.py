"""The words of what a verdict says, for tests that read them."""

from eoctl.render.verdicts.remedy_words import remedy_words
from recovery.values import Reason


def said(reason: Reason | None) -> str:
    """Return the sentence of a remedy, a refusal or a gate; empty: there is none."""
    return "" if reason is None else remedy_words(reason)
