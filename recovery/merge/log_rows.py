"""The rows of `merge verify` and `merge plan`."""

from typing import Annotated, Literal

from msgspec import Meta

from recovery.facts import HasPartition
from recovery.row import FROM, TO, Row

Finding = Literal[
    "unreadable",
    "foreign",
    "absent",
    "repeat",
    "disorder",
    "hole",
    "output-ahead",
    "output-differs",
]


class MergeFindingRow(Row):
    """One thing wrong in a merge log.

    unreadable: no entry of the format. foreign: names no input of the application. absent: there
    is no data record at that offset. repeat: the offset, or a later one, was named before, and it
    is none that was left out. disorder: it was left out before. hole: records of an input between
    two entries that the log leaves out. output-ahead: more outputs than entries.
    output-differs: outputs that are not the records that their entries name, records in a row.
    """

    topic: Annotated[str, Meta(description="the merge log")]
    partition: int
    merge_offset: Annotated[
        int | None, Meta(description="of the entry; of a hole: of the entry after it")
    ]
    finding: Finding
    input_topic: str | None
    input_partition: int | None
    offset: Annotated[
        int | None, Meta(description="in the input; of a hole: the first that is left out")
    ]
    last_offset: Annotated[int | None, Meta(description="of a hole: the last that is left out")]
    records: Annotated[int | None, Meta(description="how many records are concerned")]
    detail: str


class MergeInput(HasPartition, Row, kw_only=False):
    """Offsets [from, to) of an input that a replay reads; entries: how many the log names."""

    topic: str
    partition: int
    start: Annotated[int, FROM]
    end: Annotated[int, TO]
    entries: int


class MergeOutput(HasPartition, Row):
    """The output of a replay. from: the output's next offset at the commit; to: its end."""

    topic: str
    partition: int
    start: Annotated[int, FROM]
    end: Annotated[int, TO]


class MergePlanRow(HasPartition, Row):
    """A replay of the entries [from, to) of a merge log's partition.

    drop_first: how many of its outputs are there already. position, drop_left: where an earlier
    replay from the same commit came to, and what it has still to drop.
    """

    topic: str
    partition: int
    start: Annotated[int, FROM]
    tip: Annotated[int, TO]
    entries: int
    inputs: list[MergeInput]
    output: MergeOutput
    drop_first: int
    position: int | None
    drop_left: int | None
    transactional_id: str
