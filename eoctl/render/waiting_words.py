"""Say in a sentence what waiting leads to."""

from eoctl.render.words import age
from recovery.diagnose.prospect import Prospect


def wait_words(p: Prospect, now: int) -> str:
    """Return that sentence. now: epoch ms by our clock."""
    return "; ".join(part for part in (_ends(p), _deletes(p, now)) if part)


def _ends(p: Prospect) -> str:
    left = None if p.ends_in is None else age(abs(p.ends_in) / 1000)
    due = p.ends_in is not None and p.ends_in < 0
    if p.ending == "never":
        return "it never ends by itself"
    if p.ending == "markers":
        return "it ends when its markers are written"
    if p.ending == "brokers":
        return "it cannot end before missing brokers are back"
    if p.ending == "its-system":
        return "it ends when the system that owns it decides; Kafka never times it out"
    if p.ending == "not-known":
        return "whether it ends by itself is not known"
    if p.ending == "timeout-ignored":
        text = f"its coordinator should have aborted it {left} ago but does not"
    elif left is None:
        text = "its coordinator aborts it after its timeout; when that is, is not known"
    elif due:
        text = f"its coordinator aborts it at any moment (its timeout passed {left} ago)"
    else:
        text = f"its coordinator aborts it in {left}"
    if p.loses == "pre-committed":
        text += ", and records that look pre-committed are lost with it: restore their job before"
    elif p.loses == "committed":
        text += ", and the committed records under it are lost with it"
    return text


def _deletes(p: Prospect, now: int) -> str:
    if p.deletion == "at":
        assert p.deleted_at is not None
        return f"retention deletes the waiting records in {age((p.deleted_at - now) / 1000)}"
    return {
        "may-be-now": "retention may already delete the waiting records",
        "never": "retention never deletes here",
        "compacted": "nothing is deleted by time (compacted topic)",
        "not-known": "the topic's retention is not known",
        "nothing-known-to-wait": "",
    }[p.deletion]
