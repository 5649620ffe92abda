"""The rows of `state rebuild`, `state compare` and `state show`."""

from typing import Annotated, Literal

from msgspec import Meta

from recovery.row import FROM, TO, Row, Timestamp


class StateRebuildRow(Row):
    """One partition's state. data_records + aborted_records + control_records + missing_offsets =
    to - from; null where an earlier eoctl could not tell."""

    topic: str
    partition: int
    start: Annotated[int, FROM]
    end: Annotated[int, TO, Meta(description="not included")]
    rows: Annotated[int, Meta(description="live entries")]
    sha256_sum: Annotated[str, Meta(description="docs/state.md, Digest")]
    data_records: int
    aborted_records: int | None
    control_records: int | None
    missing_offsets: int | None
    tombstones: int
    invalid: Annotated[int, Meta(description="records that can be in no state: without a key, say")]
    ignored: Annotated[
        int | None,
        Meta(
            description="records that the store would not have taken any more; null where a "
            "versioned store was read in ranges"
        ),
    ]
    expired: Annotated[int, Meta(description="entries that retention hides")]
    incomplete: Annotated[tuple[str, ...], Meta(description="why it is not provably complete")]
    proof: Annotated[str | None, Meta(description="what proves it although it looks incomplete")]


class StateDigest(Row):
    """rows, and the sum of their SHA-256 modulo 2^256, hexadecimal."""

    rows: int
    sha256_sum: str


Difference = Literal["only_a", "only_b", "different"]


class StateValue(Row):
    """One side's value of a key. Bytes are base64; text where they are readable."""

    timestamp: Timestamp
    value: str | None
    value_text: str | None


class StateCompareRow(Row):
    """One partition, or one key that differs (where key is not null).

    difference: only_a, only_b, different; of a partition null when it is equal.
    """

    topic: str | None
    partition: int | None
    difference: Difference | None
    rows_a: int | None = None
    rows_b: int | None = None
    only_a: int | None = None
    only_b: int | None = None
    different: int | None = None
    key: str | None = None
    key_text: str | None = None
    a: StateValue | None = None
    b: StateValue | None = None


class StateSparkStore(Row):
    """The store of a Structured Streaming checkpoint that was read, after a batch of its query.

    store: its name, or the side of a join.
    """

    operator: int
    operator_name: str
    store: str
    batch: int


class StateShowRow(Row):
    """One entry of a state. Bytes are base64; key_decoded and value_decoded as the serde says, of a
    Spark checkpoint the complete structs.

    Of a Spark checkpoint `topic` is its address, `partition` is Spark's, and `offset` the batch
    after which the entry was read. extra: the columns that the format adds.
    """

    topic: str
    partition: int
    offset: int
    timestamp: Timestamp
    key: str
    key_decoded: object
    value: str | None
    value_decoded: object
    extra: dict[str, object]
