"""Cut an answer so that one call never gives more than MOST bytes, and say what was left out."""

from collections.abc import Mapping

from eoctl.render.envelope import json_line
from recovery.errors import IncompleteError
from recovery.row import ErrorRow

MOST = 64 << 10  # bytes of one result, its JSON as text and as a structure together
AROUND = 2 << 10  # of these for the sentences beside the answer
Document = Mapping[str, object]


def fitted(answer: Document, most: int = MOST - AROUND) -> Document:
    """Return the answer, with its longest lists cut from their ends if it has too many bytes.

    What is cut is `complete: false` with an error that counts it. Raise IncompleteError if one of
    each is too long as well.
    """
    shown = dict(answer)
    while size(shown) > most:
        lists = {key: v for key, v in shown.items() if isinstance(v, list) and len(v) > 1}
        if not lists:
            words = str(answer["schema"]).removeprefix("eoctl.").partition("/")[0].replace("-", " ")
            remedy = f"a person can run eoctl {words} -o json"
            raise IncompleteError(f"one row is longer than {most} bytes", remedy=remedy)
        longest = max(lists, key=lambda key: len(json_line(lists[key])))
        shown[longest] = lists[longest][: max(1, len(lists[longest]) * 3 // 4)]
        shown |= {"complete": False, "cut": _cut(answer, shown)}
    if not (cut := shown.pop("cut", None)):
        return shown
    errors = shown["errors"]
    assert isinstance(errors, list)
    return {**shown, "errors": [*errors, cut]}


def _cut(answer: Document, shown: Document) -> Mapping[str, object]:
    parts = [
        f"the first {len(shown[key])} of {len(whole)} {key}"  # type: ignore[arg-type]
        for key, whole in answer.items()
        if isinstance(whole, list) and whole != shown[key]
    ]
    order = "in the command's order, which need not begin with the worst"
    detail = f"shown: {', '.join(parts)}, {order}; name a topic, a group or an id to see the rest"
    return ErrorRow(scope="answer", error="TOO_LONG", detail=detail).json_values()


def size(answer: Document) -> int:
    """Return the bytes of an answer as a structure, and as a text within JSON."""
    text = json_line(answer)
    return len(text) + len(json_line(text))
