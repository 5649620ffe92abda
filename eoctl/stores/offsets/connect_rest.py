"""Call a worker's REST interface: connector, state and source offsets; errors in one sentence.

Blocking: called in a thread. No redirect is followed: credentials go to the address that the
operator wrote, and workers forward among themselves. Source: Connect's ConnectorsResource, KIP-875.
"""

import base64
import http.client
import json
import shlex
import ssl
from typing import Any
from urllib.parse import quote, urlsplit

from eoctl.kafka.connection.credentials import Secret, resolve
from eoctl.kafka.connection.listener import TLS_ALERT, Peer, tls_failed, wrong_name
from eoctl.kafka.connection.tls import Tls, tls_settings
from eoctl.stores.offsets.bounded import BlockingCall, LostError
from recovery.errors import EoctlError, IncompleteError, RefusedError, UnreachableError, UsageError
from recovery.quoting import quoted
from recovery.shared.store_tables import ConnectStore
from recovery.values import Value

MOST_BYTES = 64 << 20
_TLS = {
    "ca": "ssl.ca.location",
    "certificate": "ssl.certificate.location",
    "key": "ssl.key.location",
    "key_password": "ssl.key.password",
}
_WORKER = Peer(
    "the worker",
    "set [app.store] ca to the CA's certificate",
    "set [app.store] certificate and key",
    "check the port, or write http:// in [app.store] url",
)
_OLD = "offsets are read since Kafka 3.5 and changed since 3.6 (KIP-875): is it an older worker?"


class Connector(Value):
    """cluster_id: of the Kafka cluster that the worker uses. tasks: their number. offsets: as GET
    returns them, decoded."""

    cluster_id: str | None
    config: dict[str, Any]
    type: str
    state: str
    tasks: int
    offsets: list[Any]


class ConnectRest:
    """One worker. Raises UsageError for missing credentials."""

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
        self._described = described
        self._tls = _tls(described) if url.scheme == "https" else None
        given = [getattr(described, name) for name in _TLS]
        if self._tls is None and any(value is not None for value in given):
            raise UsageError("is for https:// only", where="[app.store] ca, certificate, key")
        self._headers = {"Accept": "application/json", "Content-Type": "application/json"}
        self._secrets: tuple[Secret, ...] = ()
        if (described.user is None) != (described.password is None):
            raise UsageError("user and password go together", where="[app.store] user")
        if described.user is not None and described.password is not None:
            if ":" in described.user:
                raise UsageError("a user's name holds no colon", where="[app.store] user")
            secret = resolve(described.password, "[app.store] password")
            pair = base64.b64encode(f"{described.user}:{secret}".encode()).decode("ascii")
            self._headers["Authorization"] = f"Basic {pair}"
            self._secrets = Secret(pair), Secret(secret)
        self._path = f"/connectors/{quote(described.connector, safe='')}"
        self._name = described.connector
        self._where = f"Connect {described.url.rstrip('/')}"

    def connector(self) -> Connector:
        """Return what the worker says about the connector."""
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

    def stop_command(self) -> str:
        """Return the command line that stops the connector; curl asks for passwords itself."""
        argv = ["curl", "-X", "PUT"]
        told = self._described
        options = (("-u", told.user), ("--cacert", told.ca), ("--cert", told.certificate))
        for option, value in (*options, ("--key", told.key)):
            argv += [option, value] if value is not None else []
        return shlex.join([*argv, f"{told.url.rstrip('/')}{self._path}/stop"])

    def patch(self, job: BlockingCall, offsets: list[dict[str, Any]]) -> None:
        """Change offsets. Raises RefusedError: nothing was written; LostError: outcome unknown."""
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
            raise LostError(f"HTTP {status}: {self._message(text)}")
        if status != 200:
            refused = self._refused(status, text)
            raise RefusedError(
                f"{refused.what}; nothing was written", where=refused.where, remedy=refused.remedy
            )

    def _get(self, path: str, kind: type) -> Any:
        """Return an answer's JSON. Raises UnreachableError, IncompleteError, RefusedError."""
        connection = self._connection()
        try:
            self._connect(connection)
            try:
                connection.request("GET", path, headers=self._headers)
            except OSError:
                if isinstance(connection.sock, ssl.SSLSocket):
                    connection.sock.recv(1)  # the reason for closing may still be readable
                raise
            status, text = self._answer(connection)
        except (OSError, http.client.HTTPException) as error:
            raise self._no_answer(error) from None
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

    def _connection(self, context: ssl.SSLContext | None = None) -> http.client.HTTPConnection:
        host, port = self._address
        if self._tls is None:
            return http.client.HTTPConnection(host, port, timeout=self._seconds)
        context = context or self._tls.context
        return http.client.HTTPSConnection(host, port, timeout=self._seconds, context=context)

    def _connect(self, connection: http.client.HTTPConnection) -> None:
        try:
            connection.connect()
        except (ssl.SSLError, ConnectionResetError, BrokenPipeError) as error:
            if self._tls is None:
                raise self._no_answer(error) from None
            raise self._tls_failed(error) from None
        except OSError as error:
            raise UnreachableError(
                f"cannot be reached: {_said(error)}",
                where=self._where,
                remedy="check [app.store] url; name a worker that runs",
            ) from None

    def _no_answer(self, error: Exception) -> EoctlError:
        """Return why a request that was sent has no answer."""
        closed = isinstance(error, ConnectionError | ssl.SSLEOFError)
        if isinstance(error, ssl.SSLError) and not closed:  # in TLS 1.3 it comes with the answer
            return self._tls_failed(error)
        what, remedy = f"no answer ({_said(error)})", None
        if str(error).encode("latin-1", "replace").startswith(TLS_ALERT):
            what, remedy = "the port speaks TLS", "write https:// in [app.store] url"
        elif closed and self._tls is None:
            remedy = "if the port speaks TLS, write https:// in [app.store] url"
        elif closed and self._tls and not self._tls.certificate:
            remedy = f"if the worker wants a client certificate, {_WORKER.certificate}"
        return UnreachableError(what, where=self._where, remedy=remedy)

    def _tls_failed(self, error: OSError) -> EoctlError:
        names = self._names() if wrong_name(error) else ()
        told = tls_failed(error, self._address[0], names, _WORKER)
        return UnreachableError(told.detail, where=self._where, remedy=told.remedy)

    def _names(self) -> tuple[str, ...]:
        """Return the names in the worker's certificate; () if it cannot be fetched again."""
        assert self._tls is not None
        connection = self._connection(self._tls.without_hostname_check())
        try:
            connection.connect()
            assert isinstance(connection.sock, ssl.SSLSocket)
            certificate = connection.sock.getpeercert() or {}
        except OSError:
            return ()
        finally:
            connection.close()
        return tuple(str(name[1]) for name in certificate.get("subjectAltName", ()))

    @staticmethod
    def _answer(connection: http.client.HTTPConnection) -> tuple[int, bytes]:
        answer = connection.getresponse()
        text = answer.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise http.client.HTTPException(f"more than {MOST_BYTES >> 20} MiB")
        if answer.length:  # a bounded read() does not report it
            raise http.client.HTTPException("cut in the middle")
        return answer.status, text

    def _refused(self, status: int, text: bytes) -> EoctlError:
        """Return what an unsuccessful answer means."""
        message = self._message(text)
        if status == 401 and self._described.user is None:
            return UnreachableError(
                "wants a user and a password (HTTP 401)",
                where=self._where,
                remedy="set [app.store] user and password",
            )
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
                remedy="check [app.store] connector; a worker that just started needs a moment",
            )
        if status in (404, 405):
            return RefusedError(f"has no such path (HTTP {status})", where=self._where, remedy=_OLD)
        if status == 409:
            return IncompleteError(
                "its workers rebalance (HTTP 409)", where=self._where, remedy="try again soon"
            )
        if 300 <= status < 400:
            return RefusedError(
                f"redirects us elsewhere (HTTP {status}), which is not followed",
                where=self._where,
                remedy="write the workers' own address in [app.store] url",
            )
        kind = RefusedError if status == 400 else IncompleteError
        return kind(f"HTTP {status}: {message}", where=self._where)

    def _strange(self, text: bytes) -> EoctlError:
        return IncompleteError(
            f"its answer is not what a worker of Kafka Connect sends: {self._message(text)}",
            where=self._where,
            remedy="check [app.store] url",
        )

    def _message(self, text: bytes) -> str:
        """Return the sentence in an error's JSON, or the beginning of any other answer."""
        try:
            value = json.loads(text)
            told = value.get("message") if isinstance(value, dict) else None
        except (ValueError, RecursionError):
            told = None
        shown = told if isinstance(told, str) else text.decode("utf-8", "replace")
        for secret in self._secrets:  # a proxy may quote what it received
            shown = secret.hidden_in(shown)
        return quoted(" ".join(shown[:200].split()))


def _tls(described: ConnectStore) -> Tls:
    """Return how to check the worker. Raises UsageError in terms of [app.store]."""
    given = {property_: getattr(described, name) for name, property_ in _TLS.items()}
    try:
        return tls_settings({key: value for key, value in given.items() if value is not None})
    except UsageError as error:
        raise UsageError(
            _own_words(error.what), where=_own_words(error.where), remedy=_own_words(error.remedy)
        ) from None


def _own_words(text: str | None) -> Any:
    """Name the keys of [app.store] where a text names a client's properties."""
    for name, property_ in _TLS.items():
        text = text and text.replace(property_, f"[app.store] {name}")
    return text


def _said(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, ssl.SSLEOFError):
        return "the connection was closed"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
