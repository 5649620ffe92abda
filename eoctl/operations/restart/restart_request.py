"""A restart's subject: an application file, or a group's move without one.

Both ask for facts in rounds and decide from them; the rules are in `recovery.restart.decide` and
`recovery.restart.adhoc`. Both can be kept in a plan, and repeated when it is applied.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote_plus

import msgspec

from eoctl.kafka.connection.property_names import SECRET_KEY
from recovery.errors import UsageError
from recovery.facts import TopicPartition
from recovery.restart import decide as restart
from recovery.restart.adhoc import Target, decide_adhoc, wanted_adhoc
from recovery.restart.decision import Promise, RestartPlan
from recovery.restart.observed import Observed, Question
from recovery.restart.source_offsets import parse_offsets
from recovery.shared.app_file import App, named, parse_app_file, parse_partition
from recovery.shared.store_tables import (
    ConnectStore,
    FileStore,
    FlinkCheckpointStore,
    KafkaGroupStore,
    SparkCheckpointStore,
    SqlStore,
    Store,
    TopicStore,
    ZooKeeperStore,
)
from recovery.values import Value, replace

_URI = re.compile(r"[a-z][a-z0-9+.-]*:/")
_ON_THIS_HOST = (FileStore, SparkCheckpointStore, FlinkCheckpointStore)
_SECRET = re.compile(rf"({SECRET_KEY.pattern}|passw|pwd)[^&;=\s?/@:]*\s*=", re.IGNORECASE)


class Origin(Value, omit_defaults=True):
    """The group in the cluster that it leaves. commits: its commits there, by partition. map_of:
    the cluster is gone, and this instant's mirror map says so; None: it is asked again."""

    context: str
    cluster_id: str | None
    group: str
    commits: Mapping[str, Mapping[str, Any]]
    map_of: str | None = None


class RestartRequest(Protocol):
    """One restart to plan.

    app: None without an application file. store: None if nothing is kept or written. topics: all
    that must be read. growing: those whose end decides. origin: None = the store's own cluster.
    """

    @property
    def name(self) -> str: ...
    @property
    def app(self) -> App | None: ...
    @property
    def store(self) -> Store | None: ...
    @property
    def mirror(self) -> Store | None: ...
    @property
    def inputs(self) -> frozenset[str]: ...
    @property
    def origin(self) -> Origin | None: ...
    @property
    def topics(self) -> Sequence[str]: ...
    @property
    def growing(self) -> frozenset[str]: ...
    def wants(self, observed: Observed) -> tuple[Question[Any], ...]: ...
    def decide(self, observed: Observed) -> RestartPlan: ...
    def fixed(self, decision: RestartPlan) -> Mapping[str, Any]:
        """Return the request as a plan keeps it, with each offset decided."""
        ...


class OfApp(Value):
    """The restart of an application file."""

    app: App

    origin = None

    @property
    def name(self) -> str:
        return self.app.name

    @property
    def store(self) -> Store | None:
        """Return the store; a changelog is not a store: its records are read as the log's."""
        return None if self.app.strategy == "changelog" else self.app.store

    @property
    def mirror(self) -> Store | None:
        return self.app.mirror

    @property
    def inputs(self) -> frozenset[str]:
        return frozenset(self.app.inputs)

    @property
    def growing(self) -> frozenset[str]:
        topics = {*self.app.outputs}
        if self.app.merge is not None:
            topics.add(self.app.merge.topic)
        if self.app.strategy == "changelog" and isinstance(self.app.store, TopicStore):
            topics.add(self.app.store.topic)
        return frozenset(topics)

    @property
    def topics(self) -> Sequence[str]:
        return sorted(self.inputs | self.growing)

    def wants(self, observed: Observed) -> tuple[Question[Any], ...]:
        return restart.wants(self.app, observed)

    def decide(self, observed: Observed) -> RestartPlan:
        return restart.decide(self.app, observed)

    def fixed(self, decision: RestartPlan) -> Mapping[str, Any]:
        return {"app": self.app.model_dump(mode="json")}


class AdHoc(Value):
    """A group's partitions moved to a target."""

    group: str
    target: Target
    partitions: tuple[TopicPartition, ...]
    origin: Origin | None = None

    app = None
    mirror = None
    growing: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return self.group

    @property
    def store(self) -> Store:
        return KafkaGroupStore(kind="kafka-group", group=self.group)

    @property
    def inputs(self) -> frozenset[str]:
        return frozenset(topic for topic, _ in self.partitions)

    @property
    def topics(self) -> Sequence[str]:
        return sorted(self.inputs)

    def wants(self, observed: Observed) -> tuple[Question[Any], ...]:
        return wanted_adhoc(self.target, self.partitions, observed)

    def decide(self, observed: Observed) -> RestartPlan:
        return decide_adhoc(self.target, self.group, self.partitions, observed)

    def fixed(self, decision: RestartPlan) -> Mapping[str, Any]:
        # an end or an instant names another offset by then
        offsets = {named(i.topic_partition): i.restart_offset for i in decision.inputs}
        if self.origin is None:
            return {"group": self.group, "offsets": offsets}
        promise = {"guarantee": decision.guarantee, "because": decision.because}
        origin = msgspec.to_builtins(self.origin)
        return {"group": self.group, "offsets": offsets, "promise": promise, "origin": origin}


def asked_again(details: Mapping[str, Any]) -> RestartRequest:
    """Return the request that `fixed` kept."""
    if "app" in details:
        return OfApp(App.model_validate_json(json.dumps(details["app"])))
    offsets = {parse_partition(text): offset for text, offset in details["offsets"].items()}
    target, origin = Target("from-file", offsets=offsets), None
    if "origin" in details:
        promise = Promise(**details["promise"])
        target, origin = replace(target, promise=promise), Origin(**details["origin"])
    return AdHoc(details["group"], target, tuple(sorted(offsets)), origin)


def read_text(path: Path) -> str:
    """Return the text of a file that the user names. Raises UsageError."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except UnicodeDecodeError:
        raise UsageError("is not UTF-8 text", where=str(path)) from None


def read_app_file(path: Path) -> OfApp:
    """Return the application of a file. Its paths are relative to its folder. Raises UsageError.

    Source offsets in another file are read, so that a plan keeps them.
    """
    app = parse_app_file(read_text(path), str(path))
    folder = path.absolute().parent
    stores: dict[str, Store | None] = {}
    for table in ("store", "mirror"):
        store: Store | None = getattr(app, table)
        if isinstance(store, _ON_THIS_HOST) and not _URI.match(store.path):
            store = store.model_copy(update={"path": str(folder / store.path)})
        if isinstance(store, ConnectStore):
            store = _beside(store, folder)
        key = {"sql": "url", "zookeeper": "connect"}.get(store.kind) if store else None
        if store is not None and key is not None and holds_password(store):
            raise UsageError(
                "holds a password, which would appear in the plan and in the journal",
                where=f"{path}, [app.{table}] {key}",
                remedy="write env:NAME or file:PATH in its place",
            )
        stores[table] = store
    source = app.source
    if source is not None and source.offsets is not None:
        where = f"{path}, [app.source] offsets"
        text = source.offsets
        if text.startswith("file:"):
            text = read_text(folder / text.removeprefix("file:"))
        parse_offsets(text, where)
        source = source.model_copy(update={"offsets": text})
    return OfApp(app.model_copy(update={**stores, "source": source}))


def _beside(store: ConnectStore, folder: Path) -> ConnectStore:
    """Return the store with its files' paths resolved from the application file's folder."""
    pems = {name: getattr(store, name) for name in ("ca", "certificate", "key")}
    update = {name: str(folder / pem) for name, pem in pems.items() if pem is not None}
    for name in ("password", "key_password"):
        secret: str | None = getattr(store, name)
        if secret is not None and secret.startswith("file:"):
            update[name] = f"file:{folder / secret.removeprefix('file:')}"
    return store.model_copy(update=update)


def holds_password(store: Store) -> bool:
    """Return True if the store contains a password, which a plan and the journal would keep."""
    kept_elsewhere = ("env:", "file:")
    if isinstance(store, ZooKeeperStore):
        password = store.connect.rpartition("@")[0].partition(":")[2]
        return bool(password) and not password.startswith(kept_elsewhere)
    if not isinstance(store, SqlStore) or store.url.startswith(kept_elsewhere):
        return False
    if _SECRET.search(unquote_plus(store.url)):
        return True
    try:  # as it will be opened: other parsers end the password elsewhere
        from sqlalchemy.engine import make_url
        from sqlalchemy.exc import ArgumentError
    except ModuleNotFoundError:
        return ":" in store.url.partition("://")[2].rpartition("@")[0]
    try:
        url = make_url(store.url.strip())
    except (ArgumentError, ValueError):
        return "@" in store.url
    secret = any(SECRET_KEY.search(key) for key in url.query)
    return secret or url.password is not None or "@" in (url.host or "")
