"""A dedup's request, and how its job is known again: both engines are given these values.

JSON can hold all of it, and no secret is in it.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict

from recovery.errors import RefusedError
from recovery.plurals import counted
from recovery.shared.record_ids import RecordId, SourceHeaders, parse_record_id
from recovery.times import format_duration

RULE = 1  # what makes two records the same is told by these lines' version


@dataclass(frozen=True, slots=True)
class DedupWish:
    """The wish for a dedup: from where to where, and by what two records are the same.

    horizon_ms, horizon_offsets: how far back ids are compared; None and None = to the beginning.
    follow: go beyond the end of a run that was finished. max_rate: bytes per second and broker.
    """

    source: str
    output: str
    by: RecordId
    job: str
    horizon_ms: int | None = None
    horizon_offsets: int | None = None
    follow: bool = False
    max_rate: float | None = None

    @property
    def group(self) -> str:
        """The group whose committed offsets are the positions."""
        return f"{self.job}-eoctl-dedup"

    @property
    def settings(self) -> dict[str, Any]:
        """Return what must stay the same from run to run."""
        rule: dict[str, Any] = {
            "rule": RULE,
            "id": self.by.text,
            "ms": self.horizon_ms,
            "offsets": self.horizon_offsets,
        }
        if self.by.kind == "source":
            rule |= {f"header_{k}": v for k, v in asdict(self.by.source).items()}
        return {"input": self.source, "output": self.output, "job": self.job, **rule}

    @property
    def beyond(self) -> str:
        """Return what is not compared, as a sentence."""
        within = "records are compared within a partition"
        if self.by.kind == "source":
            return f"{within}; outputs of one source record in two are found within one run's range"
        if (self.horizon_ms, self.horizon_offsets) == (None, None):
            return within
        far = (
            counted(self.horizon_offsets, "offset")
            if self.horizon_offsets is not None
            else format_duration((self.horizon_ms or 0) / 1000)
        )
        return f"{within}; a repeat more than {far} after its original is copied"

    @property
    def plain(self) -> dict[str, Any]:
        """Return the wish as JSON values; `of` makes the wish of them again."""
        rate = None if self.max_rate is None else int(self.max_rate)
        return self.settings | {"follow": self.follow, "max_rate": rate}

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "DedupWish":
        """Raises KeyError, TypeError or UsageError for anything that plain did not give."""
        names = {
            k.removeprefix("header_"): v for k, v in content.items() if k.startswith("header_")
        }
        return cls(
            source=content["input"],
            output=content["output"],
            by=parse_record_id(content["id"], SourceHeaders(**names)),
            job=content["job"],
            horizon_ms=content["ms"],
            horizon_offsets=content["offsets"],
            follow=content["follow"],
            max_rate=content["max_rate"],
        )


class Beside(NamedTuple):
    """The values beside a position. begin, end: of the job, and of its newest run. seen: how many
    visible records there were from begin to the position: fewer now, and what they were is lost."""

    begin: int
    end: int
    seen: int


@dataclass(frozen=True, slots=True)
class DedupJob:
    """A wish on this cluster: topic ids are part of what must stay the same."""

    wish: DedupWish
    digest: str

    @classmethod
    def of(cls, wish: DedupWish, topics: Mapping[str, Any]) -> "DedupJob":
        """topics: of each topic's name its id and how many partitions it has."""
        text = json.dumps([wish.settings, topics], sort_keys=True)
        return cls(wish, hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32])

    def transactional_id(self, partition: int) -> str:
        """The id of the copy of a partition: one that begins fences the one before it."""
        return f"{self.wish.group}-{partition}"

    def metadata(self, begin: int, end: int, visible_records: int) -> str:
        """Return what stands beside a position: see `Beside`."""
        progress = {"dedup": self.digest, "begin": begin, "end": end, "seen": visible_records}
        return json.dumps(progress, separators=(",", ":"))

    def beside(self, metadata: str, where: str) -> "Beside":
        """Parse what `metadata` wrote. Raises RefusedError for anybody else's."""
        try:
            progress = json.loads(metadata)
            digest = progress["dedup"]
            beside = Beside(*(int(progress[name]) for name in Beside._fields))
        except (ValueError, KeyError, TypeError):
            raise RefusedError(
                "its committed offset is not a dedup's: another application commits there",
                where=where,
                remedy="give another --job",
            ) from None
        if digest != self.digest:
            raise RefusedError(
                "the job was begun with another rule, or a topic was created again since then",
                where=where,
                remedy="use the same options, or another --job and an empty output",
            )
        return beside


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class DedupPart(_Value):
    """One input partition. begin: the job's first offset; [start, end): what is read now.

    seen: visible records in [begin, start) when they were copied. start == end: nothing is there
    yet, and that is what its position will say.
    """

    partition: int
    begin: int
    start: int
    end: int
    seen: int = 0


class DedupRequest(_Value):
    """One run's input, everything resolved: a Spark job is given this.

    wish: as `Wish.plain`. topics: of each topic's name its id and how many partitions it has.
    memory: the folder that keeps what was seen, or its address; None: it is read again. shared:
    executors must see it as the job does, which is to be proved. copies: else it only looks what
    would be copied.
    """

    wish: dict[str, Any]
    topics: dict[str, Any]
    parts: tuple[DedupPart, ...]
    memory: str | None = None
    shared: bool = False
    copies: bool = False

    @property
    def job(self) -> DedupJob:
        return DedupJob.of(DedupWish.of(self.wish), self.topics)


def scattered_error(wish: DedupWish, evidence: str) -> RefusedError:
    """found: which source record has outputs in two partitions."""
    return RefusedError(
        f"{evidence}: a number per source cannot tell which one is the repeat",
        where=wish.source,
        remedy="compare ids instead: `--by header:NAME`, `--by key` or `--by json:PATH`",
    )
