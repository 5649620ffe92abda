"""The words of what a verdict says, for tests that read them."""

import json
from typing import TypeVar

from eoctl.render.verdicts.evidence_words import evidence_words
from eoctl.render.verdicts.remedy_words import remedy_words
from recovery.diagnose.id_verdicts import IdVerdict
from recovery.diagnose.verdicts import Verdict
from recovery.remedy.repairs import remedy_allowed
from recovery.values import Reason

V = TypeVar("V", bound=Verdict | IdVerdict)


def said(reason: Reason | None) -> str:
    """Return the sentence of a remedy, a refusal or a gate; empty: there is none."""
    return "" if reason is None else remedy_words(reason)


def all_said(verdict: V) -> V:
    """Return the verdict, once each thing that it says was said, evidence and ways out apart.

    Data are numbers and names, as JSON has them; other values are in `more`.
    """
    remedy = verdict.remedy
    ways = [remedy.does, *remedy.caveats, *(why for _, why in remedy.refused)]
    ways += [] if verdict.gate is None else [verdict.gate]
    if isinstance(verdict, Verdict):
        answers = (remedy_allowed(verdict, action) for action in ("abort", "resolve", "fence"))
        ways += [answer for answer in answers if answer is not None]
    assert all([*map(evidence_words, verdict.evidence), *map(remedy_words, ways)])
    assert json.dumps([dict(reason.data) for reason in (*verdict.evidence, *ways)])
    return verdict
