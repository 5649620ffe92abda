"""Define a dedup's request and how its job is recognized; both engines receive these values.

Everything fits in JSON, and nothing is secret.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from recovery.documents import Document
from recovery.errors import RefusedError
from recovery.plurals import counted
from recovery.shared.record_ids import RecordId, SourceHeaders, parse_record_id
from recovery.times import format_duration
from recovery.values import Value

RULE = 1  # the version of the settings below, which define when two records are the same


class DedupRequest(Value):
    """A requested dedup: source and output, and what makes two records the same.

    horizon_ms, horizon_offsets: how far back ids are compared; both None = to the beginning.
    follow: continue beyond the end of a finished run. max_rate: bytes per second and broker.
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
        """Return the group whose committed offsets are the positions."""
        return f"{self.job}-eoctl-dedup"

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings that must stay the same from run to run."""
        rule: dict[str, Any] = {
            "rule": RULE,
            "id": self.by.text,
            "ms": self.horizon_ms,
            "offsets": self.horizon_offsets,
        }
        if self.by.kind == "source":
            rule |= {f"header_{k}": v for k, v in self.by.source.as_dict().items()}
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
        """Return the request as JSON values, which `of` converts back."""
        rate = None if self.max_rate is None else int(self.max_rate)
        return self.settings | {"follow": self.follow, "max_rate": rate}

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "DedupRequest":
        """Return the request. Raises KeyError, TypeError or UsageError unless `plain` wrote it."""
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
    """The values in a position's metadata. begin: of the job; end: of its newest run. seen: visible
    records from begin to the position; if fewer are left now, what was deleted is unknown."""

    begin: int
    end: int
    seen: int


class DedupJob(Value):
    """A requested dedup on this cluster: topic ids are among what must stay the same."""

    request: DedupRequest
    digest: str

    @classmethod
    def of(cls, request: DedupRequest, topics: Mapping[str, Any]) -> "DedupJob":
        """Return the job. topics: by name, the topic's id and its number of partitions."""
        text = json.dumps([request.settings, topics], sort_keys=True)
        return cls(request, hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32])

    def transactional_id(self, partition: int) -> str:
        """Return the id that copies a partition: a new copy fences the one before it."""
        return f"{self.request.group}-{partition}"

    def metadata(self, begin: int, end: int, visible_records: int) -> str:
        """Return the metadata of a position: see `Beside`."""
        progress = {"dedup": self.digest, "begin": begin, "end": end, "seen": visible_records}
        return json.dumps(progress, separators=(",", ":"))

    def beside(self, metadata: str, where: str) -> "Beside":
        """Parse what `metadata` wrote. Raises RefusedError for the metadata of others."""
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


class DedupPart(Document):
    """One input partition. begin: the job's first offset; [start, end): the range to read now.

    seen: the number of visible records in [begin, start) when they were copied. start == end: there
    is nothing to read yet, and the position will record that.
    """

    partition: int
    begin: int
    start: int
    end: int
    seen: int = 0


class DedupInput(Document):
    """The input of one run with everything resolved, as a Spark job receives it.

    request: as `DedupRequest.plain`. topics: by name, the topic's id and its number of partitions.
    memory: the folder with what was seen, or its address; None: the records are read again. shared:
    executors must see that folder as the job does, which has to be proved. copies: False = only
    count what would be copied.
    """

    request: dict[str, Any]
    topics: dict[str, Any]
    parts: tuple[DedupPart, ...]
    memory: str | None = None
    shared: bool = False
    copies: bool = False

    @property
    def job(self) -> DedupJob:
        return DedupJob.of(DedupRequest.of(self.request), self.topics)


def scattered_error(request: DedupRequest, evidence: str) -> RefusedError:
    """Return the refusal. evidence: which source record has outputs in two partitions."""
    return RefusedError(
        f"{evidence}: a number per source cannot tell which one is the repeat",
        where=request.source,
        remedy="compare ids instead: `--by header:NAME`, `--by key` or `--by json:PATH`",
    )
