"""A lock in ZooKeeper: one ephemeral node per cluster and scope, made by whoever comes first.

One node, not a queue of sequential ones: a `create` whose answer was lost can then be tried again
without leaving a second node behind. A node is ours when it holds our random name and belongs to
our session. Its czxid never comes back, so it tells our node from any later one.
"""

import json
import logging
import threading
import time
import uuid
from contextlib import suppress
from typing import Any

from eoctl.kafka.credentials import resolve
from eoctl.stores.locks import lock_name, refused
from recovery.errors import EoctlError, RefusedError, UnreachableError, UsageError

WAIT_SECONDS = 10.0  # a killed holder's node lives on until its session times out
SESSION_SECONDS = 6.0
ANSWER_SECONDS = 2.0
_POLL_SECONDS = 0.1
_WHERE = "lock_zookeeper"


def without_password(connect: str) -> str:
    """The connect string as it may be shown."""
    credentials, at, hosts = connect.rpartition("@")
    return f"{credentials.partition(':')[0]}@{hosts}" if at else hosts


def _split(connect: str) -> tuple[str, str, str | None]:
    """(hosts, folder, user:password) of `[USER:PASSWORD@]HOST:PORT[,...][/FOLDER]`."""
    credentials, at, place = connect.rpartition("@")
    hosts, slash, folder = place.partition("/")
    user, colon, password = credentials.partition(":")
    if not hosts or (at and not (user and colon and password)):
        raise UsageError(
            f"{without_password(connect)!r} is no ZooKeeper address",
            where=_WHERE,
            remedy="write zk1:2181,zk2:2181/eoctl or user:env:PASSWORD@zk1:2181/eoctl",
        )
    known = f"{user}:{resolve(password, _WHERE)}" if at else None
    return hosts, slash + folder.rstrip("/"), known


class _Session:
    """A kazoo client whose state changes are counted, and whose requests never wait long."""

    def __init__(self, connect: str) -> None:
        from kazoo.client import KazooClient
        from kazoo.security import make_acl, make_digest_acl

        hosts, self.folder, credentials = _split(connect)
        self.shown = without_password(connect)
        self.interruptions = 0
        silent = logging.getLogger("eoctl.zookeeper")
        silent.addHandler(logging.NullHandler())
        silent.propagate = False
        # ACLs are not inherited, and the right to delete is the parent's: all our nodes get one
        acl = None
        if credentials:
            user, _, password = credentials.partition(":")
            acl = [
                make_digest_acl(user, password, all=True),
                make_acl("world", "anyone", read=True),
            ]
        self.client = KazooClient(
            hosts,
            timeout=SESSION_SECONDS,
            auth_data=[("digest", credentials)] if credentials else None,
            default_acl=acl,
            logger=silent,
        )
        self.client.add_listener(self._changed)

    def _changed(self, state: str) -> None:
        if state != "CONNECTED":
            self.interruptions += 1

    def start(self, seconds: float) -> None:
        """Raises UnreachableError."""
        try:
            self.client.start(timeout=seconds)
        except self.client.handler.timeout_exception:
            raise UnreachableError(
                f"ZooKeeper did not answer within {seconds:g} s",
                where=self.shown,
                remedy="without the lock nothing is changed",
            ) from None

    @property
    def session_id(self) -> int | None:
        known = self.client.client_id
        return known[0] if known and self.client.connected else None

    def ask(self, request: Any) -> Any:
        """The answer of an asynchronous kazoo request, within ANSWER_SECONDS."""
        return request.get(timeout=ANSWER_SECONDS)

    def stop(self) -> None:
        """End the session; a server that does not answer is not waited for."""
        thread = threading.Thread(target=self._stop, daemon=True)
        thread.start()
        thread.join(ANSWER_SECONDS)

    def _stop(self) -> None:
        with suppress(Exception):
            self.client.stop()
            self.client.close()


class ZooKeeperLock:
    """The lock node, held by our session."""

    def __init__(self, session: _Session, path: str, token: int, interruptions: int) -> None:
        self._session = session
        self._path = path
        self._interruptions = interruptions
        self._lost: str | None = None
        self.token = token
        """The node's czxid: larger for every later holder."""

    def ensure_held(self) -> None:
        """Asks ZooKeeper. Once SUSPENDED, LOST or without an answer the lock stays lost."""
        if self._lost is None:
            self._lost = self._why_lost()
        if self._lost is not None:
            raise RefusedError(
                f"the lock is no longer sure: {self._lost}",
                where=self._session.shown,
                remedy="nothing more is written; see `eoctl journal list`",
            )

    def _why_lost(self) -> str | None:
        from kazoo.exceptions import KazooException

        session = self._session
        if session.interruptions != self._interruptions:
            return "the connection was suspended"
        try:
            session.ask(session.client.sync_async(self._path))
            stat = session.ask(session.client.exists_async(self._path))
        except session.client.handler.timeout_exception:
            return f"no answer within {ANSWER_SECONDS:g} s"
        except KazooException as error:
            return f"ZooKeeper answered {type(error).__name__}"
        if stat is None or stat.czxid != self.token:
            return "its node is gone"
        if session.interruptions != self._interruptions:
            return "the connection was suspended"
        return None

    def release(self) -> None:
        if self._lost is None:
            with suppress(Exception):
                self._session.ask(self._session.client.delete_async(self._path))
        self._session.stop()


def take_zookeeper_lock(
    connect: str, cluster_id: str, scope: str, holder: dict[str, Any], wait: float = WAIT_SECONDS
) -> ZooKeeperLock:
    """The lock, after at most `wait` seconds (blocking).

    connect: `[USER:PASSWORD@]HOST:PORT[,...][/FOLDER]`, digest authentication, the password also
    `env:NAME` or `file:PATH`. Raises UsageError, RefusedError that names the holder,
    UnreachableError.
    """
    session = _Session(connect)
    end = time.monotonic() + wait
    try:
        session.start(wait)
        path = f"{session.folder}/locks/{lock_name(cluster_id, scope)}"
        ours = {**holder, "lock": uuid.uuid4().hex}
        why: EoctlError = UnreachableError("ZooKeeper does not answer", where=session.shown)
        while True:
            attempt = _try(session, path, ours, scope)
            if isinstance(attempt, ZooKeeperLock):
                return attempt
            why = attempt or why
            if time.monotonic() >= end:
                raise why
            time.sleep(_POLL_SECONDS)
    except BaseException:
        session.stop()
        raise


def _try(
    session: _Session, path: str, ours: dict[str, Any], scope: str
) -> ZooKeeperLock | EoctlError | None:
    """The lock; or why it is not ours; or None when the question got no answer."""
    from kazoo.exceptions import KazooException, NoAuthError, NodeExistsError, NoNodeError

    client = session.client
    before = session.interruptions
    try:
        with suppress(NodeExistsError):  # somebody else's, or ours: then its answer was lost
            data = json.dumps(ours).encode()
            session.ask(client.create_async(path, data, ephemeral=True, makepath=True))
        data, stat = session.ask(client.get_async(path))
    except NoAuthError:
        raise RefusedError(
            "ZooKeeper does not let these credentials make the lock",
            where=session.shown,
            remedy=f"check user and password in {_WHERE}, and the ACL of {path}",
        ) from None
    except (NoNodeError, client.handler.timeout_exception, KazooException):
        return None
    try:
        there = json.loads(data)
    except ValueError:
        there = None
    mine = isinstance(there, dict) and there.get("lock") == ours["lock"]
    if mine and stat.owner_session_id == session.session_id and session.interruptions == before:
        return ZooKeeperLock(session, path, stat.czxid, before)
    # ours of a session that was lost meanwhile: it goes away by itself
    return None if mine else refused(scope, there)
