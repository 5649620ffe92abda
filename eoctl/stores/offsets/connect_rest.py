"""A worker's REST interface: connector, state and source offsets; each answer in one sentence.

Blocking: called in a thread. No redirect is followed: credentials go to the address that the
operator wrote, and workers forward among themselves. Source: Connect's ConnectorsResource, KIP-875.
"""

import base64
import http.client
import json
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from eoctl.kafka.connection.credentials import resolve
from eoctl.kafka.connection.tls import tls_settings
from eoctl.stores.offsets.bounded import BlockingCall, LostError
from recovery.errors import EoctlError, IncompleteError, RefusedError, UnreachableError, UsageError
from recovery.quoting import quoted
from recovery.shared.store_tables import ConnectStore

MOST_BYTES = 64 << 20
_TLS = {
    "ca": "ssl.ca.location",
    "certificate": "ssl.certificate.location",
    "key": "ssl.key.location",
    "key_password": "ssl.key.password",
}
_OLD = "offsets are read since Kafka 3.5 and changed since 3.6 (KIP-875): is it an older worker?"


class Connector(NamedTuple):
    """cluster_id: of the Kafka that the worker uses. tasks: how many there are. offsets: as GET
    gives them, decoded."""

    cluster_id: str | None
    config: dict[str, Any]
    type: str
    state: str
    tasks: int
    offsets: list[Any]


class ConnectRest:
    """One worker. Raises UsageError for credentials that are not there."""

    def __init__(self, described: ConnectStore, seconds: float) -> None:
        self._seconds = seconds
        url = urlsplit(described.url)
        try:
            port = url.port
        except ValueError:
            port = 0
        if port == 0 or url.hostname is None:
            raise UsageError(f"{quoted(described.url)} has no such port", where="[app.store] url")
        self._address = url.hostname, port or (443 if url.scheme == "https" else 80)
        self._context = None
        given = {name: getattr(described, name) for name in _TLS}
        if url.scheme == "https":
            properties = {_TLS[name]: value for name, value in given.items() if value is not None}
            self._context = tls_settings(properties).context
        elif any(value is not None for value in given.values()):
            raise UsageError("is for https:// only", where="[app.store] ca, certificate, key")
        self._headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if (described.user is None) != (described.password is None):
            raise UsageError("user and password go together", where="[app.store] user")
        if described.user is not None and described.password is not None:
            secret = resolve(described.password, "[app.store] password")
            pair = base64.b64encode(f"{described.user}:{secret}".encode()).decode("ascii")
            self._headers["Authorization"] = f"Basic {pair}"
        self._path = f"/connectors/{quote(described.connector, safe='')}"
        self._name = described.connector
        self._where = f"Connect {described.url.rstrip('/')}"

    def connector(self) -> Connector:
        """Return what the worker says of the connector."""
        root = self._get("/", dict)
        config = self._get(f"{self._path}/config", dict)
        status = self._get(f"{self._path}/status", dict)
        offsets = self._get(f"{self._path}/offsets", dict)
        state = status.get("connector", {})
        rows, tasks = offsets.get("offsets"), status.get("tasks", [])
        if not (isinstance(state, dict) and isinstance(rows, list) and isinstance(tasks, list)):
            raise self._strange(b"")
        return Connector(
            root.get("kafka_cluster_id"),
            config,
            str(status.get("type")),
            str(state.get("state")),
            len(tasks),
            rows,
        )

    def patch(self, job: BlockingCall, offsets: list[dict[str, Any]]) -> None:
        """Change offsets. Raises RefusedError: nothing was written; LostError: nobody knows."""
        body = json.dumps({"offsets": offsets}, ensure_ascii=False).encode()
        connection = self._connection()
        try:
            self._connect(connection)
            job.writing()
            try:
                connection.request("PATCH", f"{self._path}/offsets", body, self._headers)
                status, text = self._answer(connection)
            except (OSError, http.client.HTTPException) as error:
                raise LostError(_said(error)) from None
        finally:
            connection.close()
        if status >= 500:
            raise LostError(f"HTTP {status}: {_message(text)}")
        if status != 200:
            refused = self._refused(status, text)
            raise RefusedError(
                f"{refused.what}; nothing was written", where=refused.where, remedy=refused.remedy
            )

    def _get(self, path: str, kind: type) -> Any:
        """Raises UnreachableError, IncompleteError, RefusedError."""
        connection = self._connection()
        try:
            self._connect(connection)
            connection.request("GET", path, headers=self._headers)
            status, text = self._answer(connection)
        except (OSError, http.client.HTTPException) as error:
            raise UnreachableError(f"no answer ({_said(error)})", where=self._where) from None
        finally:
            connection.close()
        if status != 200:
            raise self._refused(status, text)
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            raise self._strange(text) from None
        if not isinstance(value, kind):
            raise self._strange(text)
        return value

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._address
        if self._context is None:
            return http.client.HTTPConnection(host, port, timeout=self._seconds)
        return http.client.HTTPSConnection(host, port, timeout=self._seconds, context=self._context)

    def _connect(self, connection: http.client.HTTPConnection) -> None:
        try:
            connection.connect()
        except OSError as error:
            raise UnreachableError(
                f"cannot be reached: {_said(error)}",
                where=self._where,
                remedy="look at [app.store] url, ca and certificate; name a worker that runs",
            ) from None

    @staticmethod
    def _answer(connection: http.client.HTTPConnection) -> tuple[int, bytes]:
        answer = connection.getresponse()
        text = answer.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise http.client.HTTPException(f"more than {MOST_BYTES >> 20} MiB")
        if answer.length:  # read() with a bound does not tell
            raise http.client.HTTPException("cut in the middle")
        return answer.status, text

    def _refused(self, status: int, text: bytes) -> EoctlError:
        """Return what an answer that is no success means."""
        message = _message(text)
        if status in (401, 403):
            return UnreachableError(
                f"does not accept these credentials (HTTP {status})",
                where=self._where,
                remedy="check [app.store] user, password and certificate",
            )
        if status == 404 and "not found" in message.lower() and self._name in message:
            return RefusedError(
                f"knows no connector {quoted(self._name)}",
                where=self._where,
                remedy="look at [app.store] connector; a worker that just started needs a moment",
            )
        if status in (404, 405):
            return RefusedError(f"has no such path (HTTP {status})", where=self._where, remedy=_OLD)
        if status == 409:
            return IncompleteError(
                "its workers rebalance (HTTP 409)", where=self._where, remedy="try again soon"
            )
        if 300 <= status < 400:
            return RefusedError(
                f"sends us elsewhere (HTTP {status}), which is not followed",
                where=self._where,
                remedy="write the workers' own address in [app.store] url",
            )
        kind = RefusedError if status == 400 else IncompleteError
        return kind(f"HTTP {status}: {message}", where=self._where)

    def _strange(self, text: bytes) -> EoctlError:
        return IncompleteError(
            f"its answer is not what a worker of Kafka Connect says: {_message(text)}",
            where=self._where,
            remedy="look at [app.store] url",
        )


def _message(text: bytes) -> str:
    """The sentence of an error's JSON, or the beginning of what else came."""
    try:
        value = json.loads(text)
        told = value.get("message") if isinstance(value, dict) else None
    except (ValueError, RecursionError):
        told = None
    shown = told if isinstance(told, str) else text[:200].decode("utf-8", "replace")
    return quoted(" ".join(shown.split()))


def _said(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
