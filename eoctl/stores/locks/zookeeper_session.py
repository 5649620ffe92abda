"""A session with ZooKeeper, for locks and for stores of offsets: bounded, and its breaks counted.

kazoo's own words never reach the terminal, and no wait for a silent server exceeds the given time.
"""

import logging
import threading
from contextlib import suppress
from typing import Any

from eoctl.kafka.connection.credentials import resolve
from recovery.errors import UnreachableError, UsageError
from recovery.times import format_duration

SESSION_SECONDS = 6.0
ANSWER_SECONDS = 2.0
LOCK = "lock_zookeeper"


def without_password(connect: str) -> str:
    """Return the connect string without its password, for display."""
    credentials, at, hosts = connect.rpartition("@")
    return f"{credentials.partition(':')[0]}@{hosts}" if at else hosts


def _split(connect: str, where: str) -> tuple[str, str, str | None]:
    """Return (hosts, folder, user:password) of `[USER:PASSWORD@]HOST:PORT[,...][/FOLDER]`."""
    credentials, at, address = connect.rpartition("@")
    hosts, slash, folder = address.partition("/")
    user, colon, password = credentials.partition(":")
    if not hosts or (at and not (user and colon and password)):
        raise _no_address(connect, where)
    known = f"{user}:{resolve(password, where)}" if at else None
    return hosts, slash + folder.rstrip("/"), known


def _no_address(connect: str, where: str) -> UsageError:
    return UsageError(
        f"{without_password(connect)!r} is not a ZooKeeper address",
        where=where,
        remedy="write zk1:2181,zk2:2181/eoctl or user:env:PASSWORD@zk1:2181/eoctl",
    )


class Session:
    """A kazoo client that counts its state changes, and has requests that never wait long.

    connect: `[USER:PASSWORD@]HOST:PORT[,...][/FOLDER]`; where: who set it, for errors.
    """

    def __init__(self, connect: str, where: str = LOCK) -> None:
        from kazoo.client import KazooClient
        from kazoo.security import make_acl, make_digest_acl

        hosts, self.folder, credentials = _split(connect, where)
        self.shown = without_password(connect)
        self._remedy = "without the lock nothing is changed" if where == LOCK else None
        self.interruptions = 0
        silent = logging.getLogger("eoctl.zookeeper")
        silent.addHandler(logging.NullHandler())
        silent.propagate = False
        # ACLs are not inherited, and the parent's decides on deletion: all our nodes get one
        acl = None
        if credentials:
            user, _, password = credentials.partition(":")
            acl = [
                make_digest_acl(user, password, all=True),
                make_acl("world", "anyone", read=True),
            ]
        try:
            self.client = KazooClient(
                hosts,
                timeout=SESSION_SECONDS,
                auth_data=[("digest", credentials)] if credentials else None,
                default_acl=acl,
                logger=silent,
            )
        except ValueError:  # a port that is not a number
            raise _no_address(connect, where) from None
        self.client.add_listener(self._changed)

    def _changed(self, state: str) -> None:
        if state != "CONNECTED":
            self.interruptions += 1

    def start(self, seconds: float) -> None:
        """Connect within `seconds`. Raises UnreachableError."""
        try:
            self.client.start(timeout=seconds)
        except self.client.handler.timeout_exception:
            raise UnreachableError(
                f"ZooKeeper did not answer within {format_duration(seconds)}",
                where=self.shown,
                remedy=self._remedy,
            ) from None

    @property
    def session_id(self) -> int | None:
        known = self.client.client_id
        return known[0] if known and self.client.connected else None

    def ask(self, request: Any) -> Any:
        """Return the answer of an asynchronous kazoo request, within ANSWER_SECONDS."""
        return request.get(timeout=ANSWER_SECONDS)

    def stop(self) -> None:
        """End the session without waiting for a server that does not answer."""
        thread = threading.Thread(target=self._stop, daemon=True)
        thread.start()
        thread.join(ANSWER_SECONDS)

    def _stop(self) -> None:
        with suppress(Exception):
            self.client.stop()
            self.client.close()
