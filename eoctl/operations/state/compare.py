"""`state compare`: two states, or a state against its live changelog or a dump.

Each file against its manifest, then digests: rows are only decoded where these differ.
"""

import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from eoctl.operations.session.session import now_ms
from eoctl.operations.state.rebuild import (
    NOT_COMPLETE,
    RebuildProgress,
    Wanted,
    not_complete,
    rebuild_state,
)
from eoctl.settings.context import Context
from eoctl.settings.folders import local_path
from eoctl.stores import private
from eoctl.stores.state import folder as state_folder
from eoctl.stores.state.rows import Dump, StateRows, parts_of, read_dump
from recovery.errors import RefusedError, UsageError
from recovery.facts import TopicPartition
from recovery.rows.answers import Answer
from recovery.rows.row import ErrorRow
from recovery.rows.state import StateCompareRow, StateValue
from recovery.state.changelogs.changelog import ChangelogFormat, changelog_format
from recovery.state.compare import Compared, EntryDifference, Side
from recovery.state.manifest import Manifest, ManifestDigest

if TYPE_CHECKING:
    import pyarrow as pa

LIVE = "live"
NOTHING = ManifestDigest(rows=0, sha256_sum="0" * 64)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What `state compare` was asked for. b: a folder, a manifest, a dump, or `live`.

    at: the cut of `live`, None: that of a. most: entries that are shown.
    """

    a: Path
    b: str
    at: str | None = None
    most: int = 20
    timestamps: bool = True


def compare(
    context: Callable[[], Context],
    asked: Comparison,
    timeout: float | None,
    progress: RebuildProgress | None = None,
) -> Answer:
    """context: called only for `live`. Raises UsageError, RefusedError."""
    left = StateRows(_folder(asked.a), state_folder.read(asked.a))
    if asked.b == LIVE:
        with _live(context(), left, asked, timeout, progress) as right:
            return _states(left, right, asked)
    if asked.at is not None:
        raise UsageError("only the live changelog is cut", where="--at")
    path = local_path(asked.b)
    if path.suffix in (".jsonl", ".ndjson"):
        return _dumped(left, read_dump(path), asked)
    return _states(left, StateRows(_folder(path), state_folder.read(path)), asked)


def _folder(path: Path) -> Path:
    return path if path.is_dir() else path.parent


@contextmanager
def _live(
    context: Context,
    left: StateRows,
    asked: Comparison,
    timeout: float | None,
    progress: RebuildProgress | None,
) -> Iterator[StateRows]:
    """Yield these changelogs, rebuilt from what they hold now, while they are compared."""
    manifest = left.manifest
    with private.temporary("compare") as folder:
        cut = folder / "cut.json"
        if asked.at is None:
            state_folder.write_cut(cut, manifest.cut)
        wanted = Wanted(
            changelogs=tuple(t.topic for t in manifest.cut.topics),
            format=manifest.format,
            at=asked.at or str(cut),
            output=folder / "state",
            engine="local",
            options=manifest.options,
        )
        if manifest.retention_ms:
            wanted = replace(wanted, retention_ms=next(iter(manifest.retention_ms.values())))
        rebuild_state(context, wanted, timeout, progress)
        yield StateRows(wanted.output, state_folder.read(wanted.output))


def _states(left: StateRows, right: StateRows, asked: Comparison) -> Answer:
    a, b = left.manifest, right.manifest
    if a.format != b.format or a.retention_ms != b.retention_ms:
        raise RefusedError(
            f"one state is {_kind(a)}, the other {_kind(b)}: their entries mean different things"
        )
    form = changelog_format(a.format, a.options)
    places_a, places_b = a.by_place(), b.by_place()
    rows: list[StateCompareRow] = []
    shown: list[StateCompareRow] = []
    for place in sorted(places_a.keys() | places_b.keys()):
        known_a, known_b = places_a.get(place), places_b.get(place)
        digest_a = known_a.digest if known_a else NOTHING
        digest_b = known_b.digest if known_b else NOTHING
        found = Compared(asked.most - len(shown))
        if digest_a != digest_b:
            parts = parts_of(max(digest_a.rows, digest_b.rows))
            for part in range(parts):
                found.add(
                    form,
                    left.rows(place, part, parts) if known_a else _none(),
                    right.rows(place, part, parts) if known_b else _none(),
                    timestamps=asked.timestamps,
                )
        else:
            # A digest is what a manifest says; it is of these files only while they are there.
            for side in (left, right):
                if place in side.manifest.by_place():
                    side.check(place)
        rows.append(_row(place, digest_a.rows, digest_b.rows, found))
        shown += [_entry(place, f) for f in found.found]
    errors = [*_unproven(a, str(asked.a)), *_unproven(b, asked.b)]
    return _answer(asked, a, rows, shown, errors, same_cut=a.cut.topics == b.cut.topics)


def _unproven(manifest: Manifest, side: str) -> list[ErrorRow]:
    """Why what is compared may not be the whole state."""
    found = [
        row.model_copy(update={"detail": f"{side}: {row.detail}"}) for row in not_complete(manifest)
    ]
    if not found and not manifest.complete:
        why = f"{side}: its manifest says that it is not complete"
        found.append(ErrorRow(scope="state", error=NOT_COMPLETE, detail=why))
    return found


def _kind(manifest: Manifest) -> str:
    retention = sorted(set(manifest.retention_ms.values()))
    return manifest.format + (f" kept {retention} ms" if retention else "")


def _dumped(left: StateRows, dump: Dump, asked: Comparison) -> Answer:
    """Against a dump, which has no digest; without partitions, all of them are one."""
    import pyarrow as pa

    manifest = left.manifest
    form = changelog_format(manifest.format, manifest.options)
    timestamps = asked.timestamps and dump.timestamps
    rows: list[StateCompareRow] = []
    shown: list[StateCompareRow] = []
    places = manifest.by_place()
    if dump.partitions:
        strange = [
            place
            for place in dump.rows
            if place not in places and not any(place == (None, p) for _, p in places)
        ]
        if strange:
            raise UsageError(f"the state has no partition {strange[0]}", where=asked.b)
        if len(manifest.cut.topics) > 1 and any(topic is None for topic, _ in dump.rows):
            raise UsageError("the state has several topics, the dump names none", where=asked.b)
        for place, p in places.items():
            found = Compared(asked.most - len(shown))
            mine = left.rows(place, 0, 1)
            theirs = dump.of(place)
            other = _none() if theirs is None else theirs
            _add(found, form, mine, other, timestamps, asked.b)
            rows.append(_row(place, p.digest.rows, len(other), found))
            shown += [_entry(place, f) for f in found.found]
    else:
        found = Compared(asked.most)
        mine = pa.concat_tables([left.rows(place, 0, 1) for place in places])
        other = pa.concat_tables([_none(), *dump.rows.values()])
        _add(found, form, mine, other, timestamps, asked.b)
        rows.append(_row(None, len(mine), len(other), found))
        shown = [_entry(None, f) for f in found.found]
    errors = _unproven(manifest, str(asked.a))
    return _answer(asked, manifest, rows, shown, errors, same_cut=None)


def _add(
    found: Compared,
    form: ChangelogFormat,
    mine: "pa.Table",
    other: "pa.Table",
    timestamps: bool,
    where: str,
) -> None:
    try:
        found.add(form, mine, other, timestamps=timestamps)
    except ValueError as error:
        raise UsageError(str(error), where=where, remedy="name each line's partition") from None


def _none() -> "pa.Table":
    import pyarrow as pa

    from recovery.formats.columns import rows_schema

    return pa.Table.from_batches([], schema=rows_schema())


def _row(
    place: TopicPartition | None, rows_a: int, rows_b: int, found: Compared
) -> StateCompareRow:
    return StateCompareRow(
        topic=place[0] if place else None,
        partition=place[1] if place else None,
        difference=None if found.equal else "different",
        rows_a=rows_a,
        rows_b=rows_b,
        only_a=found.only_a,
        only_b=found.only_b,
        different=found.different,
    )


def _entry(place: TopicPartition | None, found: EntryDifference) -> StateCompareRow:
    return StateCompareRow(
        topic=place[0] if place else None,
        partition=place[1] if place else None,
        difference=found.kind,  # type: ignore[arg-type]
        key=base64.b64encode(found.key).decode(),
        key_text=text(found.key),
        a=_value(found.a),
        b=_value(found.b),
    )


def _value(side: Side | None) -> StateValue | None:
    if side is None:
        return None
    content = side.value
    return StateValue(
        timestamp=side.timestamp,
        value=None if content is None else base64.b64encode(content).decode(),
        value_text=None if content is None else text(content),
    )


def text(content: bytes) -> str | None:
    """Bytes as the text they may be; None where they are none that people can read."""
    try:
        found = content.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return found if found.isprintable() else None


def _answer(
    asked: Comparison,
    manifest: Manifest,
    rows: list[StateCompareRow],
    shown: list[StateCompareRow],
    errors: list[ErrorRow],
    *,
    same_cut: bool | None,
) -> Answer:
    different = any(row.difference is not None for row in rows)
    return Answer(
        schema="state-compare",
        cluster_id=manifest.cluster_id,
        collected_at=now_ms(),
        rows=[*rows, *shown],
        errors=errors,
        extra={
            "a": str(asked.a),
            "b": asked.b,
            "equal": not different,
            "same_cut": same_cut,
            "shown": len(shown),
        },
        judging=True,
        finding=different,
    )
