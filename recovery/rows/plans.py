"""The rows of the dashboard's list of plan files."""

from recovery.rows.row import Row, Timestamp


class PlanFileRow(Row):
    """A file in the folder of plans. error: why it cannot be used; then the rest is null."""

    path: str
    kind: str | None = None
    action: str | None = None
    context: str | None = None
    cluster_id: str | None = None
    scope: str | None = None
    summary: str | None = None
    created: Timestamp = None
    expires: Timestamp = None
    sha256: str | None = None
    steps: int | None = None
    error: str | None = None
