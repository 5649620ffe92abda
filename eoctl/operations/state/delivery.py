"""Describe a delivery: a finished state of one changelog, and the place that receives it.

The state is proven by its manifest, which is read again and hashed before anything is written; the
rows go in the order of their offsets, so every attempt sends the same rows.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from eoctl.engine.delivered import DeliveredState
from eoctl.operations.restart.restart_request import holds_password
from eoctl.stores.state import folder as state_folder
from eoctl.stores.state.finished_rows import StateRows
from eoctl.stores.storage_address import storage_and_name
from recovery.errors import RefusedError, UsageError
from recovery.plurals import counted
from recovery.quoting import quoted
from recovery.restart.store_words import parse_store
from recovery.shared.store_tables import SqlStore
from recovery.state.state_jobs import NamedState
from recovery.values import Value, replace

TOPIC, SQL, STREAMS = "topic:", "sql:", "streams-dir:"
KINDS = ("timestamped", "plain")
"""Key-value stores of Kafka Streams that lie in RocksDB."""

_FORMS = "topic:NAME, sql:URL#TABLE or streams-dir:DIR"


class DeliveryRequest(Value):
    """The request of `state deliver`. folder: absolute, or an address; or a manifest in it with
    another name. changelog: the one to deliver, if the state has several.

    into: `topic:NAME`, `sql:URL#TABLE` or `streams-dir:DIR`. offsets: a table for the restart
    offsets, in the rows' transaction; its rows name the changelog, or for coast the topic `input`.
    replace: update and delete rows of the table that do not belong to this state. incomplete: also
    deliver a state that is not provably complete. without_headers: also deliver one whose records
    had, or may have had, headers, which a state does not hold. subtopology, stores (name: one of
    KINDS): a Streams application's, for delivery into its directory.
    """

    folder: str
    into: str
    changelog: str | None = None
    offsets: str | None = None
    input: str | None = None
    replace: bool = False
    incomplete: bool = False
    without_headers: bool = False
    subtopology: int | None = None
    stores: Mapping[str, str] = msgspec.field(default_factory=dict)

    def check(self) -> None:
        """Raise UsageError, which never shows a url: it may hold a password."""
        for name, word in (
            ("--with-offsets", self.offsets),
            ("--input", self.input),
            ("--changelog", self.changelog),
        ):
            if word == "":
                raise UsageError(
                    "an empty name", where=name, remedy="leave the option out, or name one"
                )
        if self.into.startswith(STREAMS):
            self._check_streams()
        elif self.subtopology is not None or self.stores:
            name = "--store" if self.stores else "--subtopology"
            raise UsageError("is for the directory of a Streams application", where=name)
        if not self.into.startswith(SQL):
            if not (self.topic or self.into.startswith(STREAMS)):
                raise UsageError("cannot hold a state", where="--into", remedy=_FORMS)
            for name, given in (
                ("--with-offsets", self.offsets),
                ("--input", self.input),
                ("--replace", self.replace),
            ):
                if given:
                    raise UsageError("is for a table of a database", where=name)
            return
        if self.input is not None and self.offsets is None:
            raise UsageError("names what --with-offsets keeps", where="--input")
        if holds_password(self.store):
            raise UsageError(
                "the url holds a password, which would appear in the plan and in the journal",
                where="--into",
                remedy="write sql:env:NAME#TABLE or sql:file:PATH#TABLE",
            )

    def _check_streams(self) -> None:
        if self.incomplete:
            raise UsageError(
                "an application takes what is in its directory as complete and restores none of it",
                where="--accept-incomplete",
            )
        for store, kind in self.stores.items():
            if kind not in KINDS:
                raise UsageError(
                    f"{quoted(kind)} cannot be delivered: window, session and "
                    "versioned stores cannot be, and those in memory have no files",
                    where=f"--store {store}",
                    remedy=" or ".join(KINDS),
                )

    @property
    def topic(self) -> str | None:
        """Return the topic, if the place is one."""
        return self.into.removeprefix(TOPIC) if self.into.startswith(TOPIC) else None

    @property
    def store(self) -> SqlStore:
        """Return the database and table. Raises UsageError."""
        try:
            described = parse_store(self.into)
        except UsageError as error:
            raise UsageError(error.what, where="--into") from None
        assert isinstance(described, SqlStore)
        return described

    @property
    def facts(self) -> dict[str, Any]:
        """Return the request as a step's parameters."""
        return self.as_dict()


def sources(request: DeliveryRequest) -> list[DeliveredState]:
    """Return a request's states: of all changelogs if stores go together, else of one.

    Raises what `source` raises.
    """
    if not request.into.startswith(STREAMS) or request.changelog is not None:
        return [source(request)]
    topics = state_folder.read(request.folder).cut.topics
    return [source(replace(request, changelog=t.topic)) for t in topics]


def source(request: DeliveryRequest) -> DeliveredState:
    """Return the state of a request. Raises UsageError; RefusedError if it is not proven."""
    storage, manifest, content = state_folder.read_bytes(request.folder)
    topics = [t.topic for t in manifest.cut.topics]
    if request.changelog is None and len(topics) != 1:
        raise UsageError(
            f"the state is of {len(topics)} changelogs",
            where=storage.address,
            remedy=f"name one of them with --changelog: {', '.join(topics)}",
        )
    if request.changelog is not None and request.changelog not in topics:
        raise UsageError(f"the state is not of {request.changelog}", where="--changelog")
    if not (manifest.complete or request.incomplete):
        raise RefusedError(
            f"the state is not provably complete: {manifest.incomplete[0]}",
            where=storage.address,
            remedy="--accept-incomplete delivers it nevertheless",
        )
    state = DeliveredState(
        StateRows(storage, manifest),
        request.changelog or topics[0],
        hashlib.sha256(content).hexdigest(),
    )
    if state.with_headers and not request.without_headers:
        raise RefusedError(
            f"{counted(state.with_headers, 'record')} of {state.changelog} had headers, which a "
            "state does not hold: they would be lost",
            where=storage.address,
            remedy="deliver only keys and values with --without-headers",
        )
    if state.with_headers is None and not request.without_headers:
        raise RefusedError(
            f"whether records of {state.changelog} had headers is not known: not all of them were "
            "counted, and a state does not hold them",
            where=storage.address,
            remedy="rebuild it completely, which counts them; or deliver "
            "only keys and values with --without-headers",
        )
    for topic_partition in manifest.by_partition():
        if topic_partition[0] == state.changelog:
            state.rows.check(topic_partition)
    return state


def named(given: str, sha256: str) -> NamedState:
    """Return a state as executors open it again. given: its folder, address or manifest; sha256: of
    the manifest that this process read."""
    storage, name = storage_and_name(given, state_folder.MANIFEST)
    return NamedState(address=storage.shown(name), sha256=sha256)
