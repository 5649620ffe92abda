"""A store's content: for each input partition a position, and what belongs to it.

This is the JSON object of docs/restart.md; the metadata of a group's commit keeps its `output`
part. `next_positions` turns what a store keeps into positions; `as_kept` turns it back.
"""

import base64
import binascii
import json
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, ValidationError

from recovery.documents import StrictDocument, unique_keys
from recovery.facts import HasPartition, TopicPartition
from recovery.formats.reader import CorruptError
from recovery.quoting import quoted
from recovery.shared.offset_bounds import MAX_OFFSET

StoredPosition = Literal["next", "last"]
_Offset = Annotated[int, Field(ge=-1, le=MAX_OFFSET)]
_Number = Annotated[int, Field(ge=0)]


class StoredOffset(HasPartition, StrictDocument):
    """An offset of an input. Its other fields, where given, are checked against the cluster.

    leader_epoch: of the record before the offset (KIP-320).
    """

    topic: Annotated[str, Field(min_length=1)]
    partition: Annotated[int, Field(ge=0, le=2**31 - 1)]
    offset: _Offset
    cluster_id: str | None = None
    topic_id: str | None = None
    leader_epoch: _Number | None = None


class StoredOutput(StoredOffset):
    """An offset of an output, the producer that wrote up to it, and its last sequence."""

    producer_id: _Number | None = None
    producer_epoch: _Number | None = None
    last_sequence: _Number | None = None


def _unbase64(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise ValueError(f"not base64: {error}") from None


def _listed(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return tuple(value)
    return (value,)


class StoredPartition(StrictDocument):
    """The position of one input partition and what was committed with it.

    output: the next offset of each output; merge: that of the merge log; state: the application's.
    """

    input: StoredOffset
    output: Annotated[tuple[StoredOutput, ...], BeforeValidator(_listed)] = ()
    state: (
        Annotated[
            bytes,
            BeforeValidator(_unbase64),
            PlainSerializer(lambda b: base64.b64encode(b).decode("ascii"), when_used="json"),
        ]
        | None
    ) = None
    merge: _Offset | None = None


class _Object(StrictDocument):
    partitions: Annotated[tuple[StoredPartition, ...], Field(strict=False)]


class _Metadata(StrictDocument):
    output: Annotated[tuple[StoredOutput, ...], BeforeValidator(_listed)]


def parse_stored(text: str, where: str) -> tuple[StoredPartition, ...]:
    """Return the partitions of the JSON object, in its order. where: the store, for errors.

    Raises CorruptError if the text is anything else or names a partition twice.
    """
    try:
        partitions = _Object.model_validate(_json(text)).partitions
    except ValidationError as error:
        raise CorruptError(_first(error), where=where) from None
    except ValueError as error:
        raise CorruptError(f"not the JSON of stored offsets: {error}", where=where) from None
    _refuse_twice((p.input.topic_partition for p in partitions), "partitions", where)
    for p in partitions:
        _refuse_twice(
            (o.topic_partition for o in p.output),
            f"the outputs of {p.input.topic_partition}",
            where,
        )
    return partitions


def dump_stored(partitions: Iterable[StoredPartition]) -> str:
    """Return compact JSON with keys in a fixed order, which `parse_stored` reads."""
    return json.dumps({"partitions": [_plain(p) for p in partitions]}, separators=(",", ":"))


def parse_metadata(text: str | None, where: str) -> tuple[StoredOutput, ...]:
    """Return the outputs in a commit's metadata; () if it has none, whatever else it contains.

    A NUL at its end is skipped: librdkafka's bindings for Python store one. Raises CorruptError if
    it has an `output` that cannot be read.
    """
    try:
        metadata = _json((text or "").removesuffix("\0"))
    except ValueError:
        return ()
    if not isinstance(metadata, dict) or "output" not in metadata:
        return ()
    try:
        outputs = _Metadata.model_validate(metadata).output
    except ValidationError as error:
        raise CorruptError(f"metadata: {_first(error)}", where=where) from None
    _refuse_twice((o.topic_partition for o in outputs), "the outputs", where)
    return outputs


def dump_metadata(outputs: Sequence[StoredOutput]) -> str:
    """Return the metadata for a commit that keeps these outputs; empty if there are none."""
    if not outputs:
        return ""
    return json.dumps({"output": _one_or_many(outputs)}, separators=(",", ":"))


def next_positions(
    partitions: Iterable[StoredPartition], position: StoredPosition
) -> tuple[StoredPartition, ...]:
    """Convert what a store keeps to positions: the next offset to read, and to write.

    Raises CorruptError if an offset is negative.
    """
    shift = 1 if position == "last" else 0
    return tuple(_shifted(p, shift) for p in partitions)


def as_kept(
    partitions: Iterable[StoredPartition], position: StoredPosition
) -> tuple[StoredPartition, ...]:
    """Convert positions to what the store keeps; `last` before the first offset is -1."""
    shift = -1 if position == "last" else 0
    return tuple(_shifted(p, shift, least=shift) for p in partitions)


def _shifted(p: StoredPartition, shift: int, least: int = 0) -> StoredPartition:
    offsets = [p.input, *p.output]
    for o in offsets:
        if o.offset + shift < least:
            raise CorruptError(f"{o.topic_partition} holds the offset {o.offset}")
    return p.model_copy(
        update={
            "input": p.input.model_copy(update={"offset": p.input.offset + shift}),
            "output": tuple(o.model_copy(update={"offset": o.offset + shift}) for o in p.output),
            "merge": None if p.merge is None else p.merge + shift,
        }
    )


def _plain(p: StoredPartition) -> dict[str, Any]:
    fields = p.model_dump(mode="json", exclude_none=True)
    fields.pop("output")
    if p.output:
        fields["output"] = _one_or_many(p.output)
    return fields


def _one_or_many(outputs: Sequence[StoredOutput]) -> Any:
    rows = [o.model_dump(mode="json", exclude_none=True) for o in outputs]
    return rows[0] if len(rows) == 1 else rows


def _refuse_twice(partitions: Iterable[TopicPartition], what: str, where: str) -> None:
    partitions_before: set[TopicPartition] = set()
    for partition in partitions:
        if partition in partitions_before:
            raise CorruptError(f"{partition} is there twice in {what}", where=where)
        partitions_before.add(partition)


def _json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=unique_keys)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _first(error: ValidationError) -> str:
    problem = error.errors(include_url=False)[0]
    path = ".".join(str(part) for part in problem["loc"])
    given = problem.get("input")
    value_text = f" ({quoted(str(given))})" if isinstance(given, (str, int, float)) else ""
    return f"{path}: {problem['msg']}{value_text}" if path else problem["msg"]
