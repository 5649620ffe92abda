"""The records of one open transaction, and the first that wait: read when the key is pressed.

They are on this page only: no snapshot, recording or file has them.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from eoctl.render.sanitise import visible
from recovery.errors import EoctlError
from tui.widgets.lines import Line
from tui.widgets.overlays import Overlay
from tui.widgets.text import error_lines, wrapped

if TYPE_CHECKING:
    from eoctl.operations.inspect.records import Request
    from eoctl.settings.context import Context
    from recovery.answers import Answer
    from recovery.diagnose.diagnosis_rows import TxnHangingRow

SECONDS = 30.0


def request_of(held: "TxnHangingRow") -> "Request | None":
    """Return what to read for a judged transaction; None if it holds no known partition."""
    from eoctl.operations.inspect.records import Request

    if held.topic is None or held.partition is None:
        return None
    if held.producer_id is None or held.start_offset is None:
        return None
    return Request(held.topic, held.partition, held.producer_id, held.start_offset)


def answered(context: "Context", request: "Request") -> "Answer":
    """Read the records. Raises EoctlError. Takes seconds."""
    from eoctl.operations.inspect import records
    from eoctl.operations.session.session import with_cluster

    records.permit(context)
    forms = records.forms_of(context)
    return with_cluster(
        context, SECONDS, lambda cluster: records.of_transaction(cluster, context, request, forms)
    )


class Records(Overlay):
    """The page of the records."""

    def __init__(self, context: "Context", request: "Request") -> None:
        super().__init__(f"Records of {visible(str(request.topic_partition))}", self._page_lines)
        self._ask = partial(answered, context, request)
        self.outcome: Answer | EoctlError | None = None

    def on_mount(self) -> None:
        super().on_mount()
        self.run_worker(self._reading, thread=True)

    def _reading(self) -> None:
        """Read, in a thread."""
        result: Answer | EoctlError
        try:
            result = self._ask()
        except EoctlError as error:
            result = error
        self.app.call_from_thread(self._done, result)

    def _done(self, result: "Answer | EoctlError") -> None:
        self.outcome = result
        if self.is_attached:
            super().on_mount()

    def _page_lines(self, width: int) -> Sequence[Line]:
        if self.outcome is None:
            return [((" reading", "dim"),)]
        if isinstance(self.outcome, EoctlError):
            text = visible(self.outcome.sentence)
            return [((part, "look"),) for part in wrapped(text, width - 1, " ")]
        return _answer_lines(self.outcome, width)


def _answer_lines(answer: "Answer", width: int) -> list[Line]:
    from eoctl.render.columns.records import notes_of, record_lines
    from recovery.inspect.cluster_rows import RecordRow

    rows = [row for row in answer.rows if isinstance(row, RecordRow)]
    lines: list[Line] = [
        ((text, "text" if number else "dim"),)
        for number, text in enumerate(record_lines(rows, width, ascii_only=False))
    ]
    notes = [part for note in notes_of(answer) for part in wrapped(visible(note), width - 1, " ")]
    return [*lines, (), *(((part, "dim"),) for part in notes), *error_lines(answer.errors, width)]
