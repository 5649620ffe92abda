"""A lock in ZooKeeper: one ephemeral node per cluster and scope, created by the first taker.

One node, not a queue of sequential ones: a `create` whose answer was lost can then be tried again
without leaving a second node. A node is ours when it holds our random name and belongs to our
session. Its czxid is never reused, so it distinguishes our node from any later one.
"""

import json
import time
import uuid
from contextlib import suppress
from typing import Any

from eoctl.stores.locks.lock import lock_name, refused
from eoctl.stores.locks.zookeeper_session import ANSWER_SECONDS, LOCK, Session
from recovery.errors import EoctlError, RefusedError, UnreachableError
from recovery.times import format_duration

WAIT_SECONDS = 10.0  # a killed holder's node lives on until its session times out
_POLL_SECONDS = 0.1


class ZooKeeperLock:
    """The lock node, held by our session."""

    def __init__(self, session: Session, path: str, token: int, interruptions: int) -> None:
        self._session = session
        self._path = path
        self._interruptions = interruptions
        self._lost: str | None = None
        self.token = token
        """The node's czxid: larger for every later holder."""

    def ensure_held(self) -> None:
        """Ask ZooKeeper. After SUSPENDED, LOST or a missing answer the lock stays lost."""
        if self._lost is None:
            self._lost = self._why_lost()
        if self._lost is not None:
            raise RefusedError(
                f"the lock may be lost: {self._lost}",
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
            return f"no answer within {format_duration(ANSWER_SECONDS)}"
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
    """Take the lock within `wait` seconds (blocking).

    connect: `[USER:PASSWORD@]HOST:PORT[,...][/FOLDER]`, digest authentication, the password also as
    `env:NAME` or `file:PATH`. Raises UsageError, RefusedError that names the holder,
    UnreachableError.
    """
    session = Session(connect)
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
    session: Session, path: str, ours: dict[str, Any], scope: str
) -> ZooKeeperLock | EoctlError | None:
    """Return the lock, or why it is not ours, or None if the request got no answer."""
    from kazoo.exceptions import KazooException, NoAuthError, NodeExistsError, NoNodeError

    client = session.client
    before = session.interruptions
    try:
        with suppress(NodeExistsError):  # somebody else's, or ours if its answer was lost
            data = json.dumps(ours).encode()
            session.ask(client.create_async(path, data, ephemeral=True, makepath=True))
        data, stat = session.ask(client.get_async(path))
    except NoAuthError:
        raise RefusedError(
            "ZooKeeper does not let these credentials make the lock",
            where=session.shown,
            remedy=f"check user and password in {LOCK}, and the ACL of {path}",
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
    # ours, but from a session lost meanwhile: ZooKeeper removes the node
    return None if mine else refused(scope, there)
