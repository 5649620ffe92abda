"""`state show`: show a key's entries in a finished state, decoded."""

import base64
from collections.abc import Iterator
from typing import Any

import msgspec

from eoctl.host.clock import now_ms
from eoctl.operations.state import spark_state
from eoctl.operations.state.spark_state import SparkChoice
from eoctl.stores.serdes import Serde, serde
from eoctl.stores.state import folder as state_folder
from eoctl.stores.state.finished_rows import StateRows
from recovery.answers import Answer
from recovery.errors import UsageError
from recovery.facts import TopicPartition
from recovery.row import ErrorRow
from recovery.state.state_rows import StateShowRow
from recovery.values import Value

OWN = ("partition", "offset", "timestamp", "key", "value")
USER_KEY = "user_key"  # of windows and sessions: the key without its window


class ShowRequest(Value):
    """The request of `state show`. state: its folder, address or manifest, or spark:DIR, a
    checkpoint. key None: the first `most` entries."""

    state: str
    key: str | None
    key_serde: str = "string"
    value_serde: str = "string"
    most: int = 100
    spark: SparkChoice = msgspec.field(default_factory=SparkChoice)


def show(request: ShowRequest, seconds: float | None = None) -> Answer:
    """Return entries whose key, or key without its window, is the requested one.

    If a serde cannot decode a value, the entry is an error row with its bytes. Raises UsageError.
    """
    keys, values = (
        serde(request.key_serde, "--key-serde"),
        serde(request.value_serde, "--value-serde"),
    )
    key = None if request.key is None else _typed(keys, request)
    if spark_state.is_checkpoint(request.state):
        return _of_checkpoint(request, key, seconds)
    storage, manifest = state_folder.opened(request.state)
    rows: list[StateShowRow] = []
    errors: list[ErrorRow] = []
    for partition, row in _matching(StateRows(storage, manifest), key):
        if len(rows) == request.most:
            break
        rows.append(_row(partition, row, keys, values, errors))
    return Answer(
        schema="state-show",
        cluster_id=manifest.cluster_id,
        collected_at=now_ms(),
        rows=rows,
        errors=errors,
        extra={"format": manifest.format, "at": manifest.cut.at},
        judging=True,
        finding=key is not None and not rows,
    )


def _of_checkpoint(request: ShowRequest, key: bytes | None, seconds: float | None) -> Answer:
    wanted = None
    if key is not None and request.key is not None:
        wanted = {"text": request.key, "hex": key.hex()}
    with spark_state.read(
        request.state, request.spark, seconds, key=wanted, most=request.most
    ) as state:
        rows = spark_state.shown(state)
        store = state.store
    return Answer(
        schema="state-show",
        cluster_id=None,
        collected_at=now_ms(),
        rows=rows,
        extra={"format": "spark", "at": f"batch {store.batch}", "spark": store.json_values()},
        judging=True,
        finding=key is not None and not rows,
    )


def _typed(keys: Serde, request: ShowRequest) -> bytes:
    assert request.key is not None
    if keys.encode is None:
        raise UsageError(
            "a key of that kind can't be typed",
            where="KEY",
            remedy="give its bytes with --key-serde hex",
        )
    try:
        return keys.encode(request.key)
    except ValueError as error:
        raise UsageError(
            f"{request.key!r} is not a valid {request.key_serde}: {error}", where="KEY"
        ) from None


def _matching(
    state: StateRows, key: bytes | None
) -> Iterator[tuple[TopicPartition, dict[str, Any]]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    for partition in state.manifest.by_partition():
        for table in state.all_rows(partition):
            matching = table
            if key is not None:
                masks = [
                    pc.equal(table.column(name), pa.scalar(key, table.schema.field(name).type))
                    for name in ("key", USER_KEY)
                    if name in table.column_names
                ]
                mask = masks[0] if len(masks) == 1 else pc.or_(*masks)
                matching = table.filter(mask)
            for row in matching.to_pylist():
                yield partition, row


def _row(
    topic_partition: TopicPartition,
    row: dict[str, Any],
    keys: Serde,
    values: Serde,
    errors: list[ErrorRow],
) -> StateShowRow:
    def decoded(content: bytes | None, how: Serde, what: str) -> object:
        if content is None:
            return None
        try:
            return how.decode(content)
        except ValueError as error:
            errors.append(
                ErrorRow(
                    scope="partition",
                    topic=topic_partition[0],
                    partition=topic_partition[1],
                    id=f"offset {row['offset']}",
                    error="NOT_DECODED",
                    detail=f"its {what} is not what the serde expects: {error}",
                )
            )
            return None

    key = row[USER_KEY] if row.get(USER_KEY) is not None else row["key"]
    return StateShowRow(
        topic=topic_partition[0],
        partition=topic_partition[1],
        offset=row["offset"],
        timestamp=row["timestamp"],
        key=_base64(row["key"]) or "",
        key_decoded=decoded(key, keys, "key"),
        value=_base64(row["value"]),
        value_decoded=decoded(row["value"], values, "value"),
        extra={
            name: _base64(value) if isinstance(value, bytes) else value
            for name, value in row.items()
            if name not in OWN
        },
    )


def _base64(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()
