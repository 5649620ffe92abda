"""`offsets show --store`: compare the positions in stores with LSO and high watermark."""

import json
from collections.abc import Sequence
from pathlib import Path

from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.inspect.lists import Scope, selected
from eoctl.operations.inspect.offset_answers import Reading, against_logs
from eoctl.operations.restart.restart_request import read_app_file
from eoctl.stores.offsets.opening import open_store
from eoctl.stores.offsets.store import Contents, StoreEntry
from recovery.answers import Answer
from recovery.errors import EoctlError, UsageError
from recovery.facts import GroupOffsetFacts, Missing
from recovery.restart.store_words import WORDS, parse_store
from recovery.restart.stored import dump_stored
from recovery.selectors import Selector
from recovery.shared.app_file import App
from recovery.shared.store_tables import Store


async def show_stores(
    cluster: Cluster,
    words: Sequence[str],
    selectors: Sequence[Selector],
    *,
    counting: Reading | None = None,
    in_time: bool = False,
) -> Answer:
    """Return the positions in the named stores, as `offsets show` prints those of groups.

    words: as `recovery.restart.store_words` takes them, or an application file, then with its
    mirror. A store that cannot be read is one of the errors, and raised if it is the only one.
    """
    missing: list[Missing] = []
    partitions = None
    if selectors:
        _, chosen, missing = await selected(cluster, Scope(tuple(selectors)))
        partitions = {p.topic_partition for p in chosen}
    rows: list[GroupOffsetFacts] = []
    stores: list[dict[str, object]] = []
    troubles: list[EoctlError] = []
    described = [rows_here for word in words for rows_here in _named(word)]
    for one, app in described:
        try:
            async with open_store(one, cluster=cluster, app=app) as store:
                contents = await store.read()
        except EoctlError as error:
            troubles.append(error)
            continue
        stores.append({"store": store.name, "kind": one.kind, "exists": contents.exists})
        rows_here = _facts(store.name if one.kind != "kafka-group" else one.group, one, contents)
        rows += [o for o in rows_here if partitions is None or o.topic_partition in partitions]
    if troubles and not stores:
        raise troubles[0]
    missing += [Missing("store", "UNREADABLE", e.sentence, id=e.where) for e in troubles]
    return await against_logs(
        cluster,
        rows,
        missing,
        counting=counting,
        in_time=in_time,
        extra={"groups": [], "stores": stores},
    )


def _named(word: str) -> list[tuple[Store, App | None]]:
    parsed = parse_store(word)
    if parsed is not None:
        return [(parsed, None)]
    if not Path(word).is_file():
        raise UsageError(
            "is neither an application file nor a store", where=word, remedy=f"write {WORDS}"
        )
    app = read_app_file(Path(word)).app
    if app.store is None:
        raise UsageError("the application has no [app.store]", where=word)
    return [(store, app) for store in (app.store, app.mirror) if store is not None]


def _facts(name: str, described: Store, contents: Contents) -> list[GroupOffsetFacts]:
    """Return the facts of a store's positions. pending: None if a store has none."""
    kafka = described.kind == "kafka-group"
    pending = {o.topic_partition for o in contents.pending}
    facts = [
        GroupOffsetFacts(
            group=name,
            topic=entry.topic_partition[0],
            partition=entry.topic_partition[1],
            committed_offset=entry.position.input.offset,
            leader_epoch=entry.position.input.leader_epoch,
            metadata=entry.kept["metadata"] if kafka else _beside(entry),
            pending=entry.topic_partition in pending if kafka else None,
        )
        for entry in contents.entries
    ]
    known = {o.topic_partition for o in facts}
    return facts + [o for o in contents.pending if o.topic_partition not in known]


def _beside(entry: StoreEntry) -> str | None:
    """Return what belongs to the offset, as JSON; for the state only its size."""
    [row] = json.loads(dump_stored([entry.position]))["partitions"]
    del row["input"]
    if entry.position.state is not None:
        row["state"] = f"{len(entry.position.state)} bytes"
    return json.dumps(row, separators=(",", ":")) if row else None
