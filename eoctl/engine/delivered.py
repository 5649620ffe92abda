"""The part of a finished state that is delivered: one changelog's."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from eoctl.stores.state.finished_rows import StateRows
from recovery.plurals import counted
from recovery.state.manifest import Manifest, ManifestPartition
from recovery.values import Value


class DeliveredState(Value, dict=True):
    """One changelog's part of a finished state. sha256: of its manifest."""

    rows: StateRows
    changelog: str
    sha256: str

    @property
    def manifest(self) -> Manifest:
        return self.rows.manifest

    @cached_property
    def partitions(self) -> Mapping[int, ManifestPartition]:
        """Return the partitions by number."""
        return {p.partition: p for p in self.manifest.partitions if p.topic == self.changelog}

    @property
    def count(self) -> int:
        """Return the number of rows in all partitions."""
        return sum(p.digest.rows for p in self.partitions.values())

    @property
    def with_headers(self) -> int | None:
        """Return how many records of the changelog had headers; None: they were not counted."""
        counts = [p.counts.get("with_headers") for p in self.partitions.values()]
        known = [count for count in counts if count is not None]
        total = sum(known)
        return total if total or len(known) == len(counts) else None

    @property
    def facts(self) -> dict[str, Any]:
        """Return what must not change before the state is written."""
        return {"manifest_sha256": self.sha256, "changelog": self.changelog}

    def words(self) -> str:
        """Return the state in words, for the plan's summary."""
        text = f"{counted(self.count, 'entry', 'entries')} of {self.changelog} at "
        text += self.manifest.cut.at
        if not self.manifest.complete:
            text += ", NOT PROVABLY COMPLETE"
        if self.manifest.consistent is False:
            text += ", NOT CONSISTENT"
        if self.with_headers is None:
            text += ", whether its records had headers is not known"
        elif self.with_headers:
            text += f", WITHOUT THE HEADERS of {counted(self.with_headers, 'record')}"
        return text
