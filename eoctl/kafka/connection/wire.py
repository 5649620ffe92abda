"""One connection to one broker: frames, correlation ids, versions, deadlines.

Requests and repairs use this and no client library, because those lose errors, hang, and hide
missing brokers. kafka-python's message classes encode and decode. Requests may be pipelined: a
broker answers one connection's requests in their order.
"""

import asyncio
import struct
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from eoctl.kafka.connection import listener as diagnosis
from eoctl.kafka.connection import messages
from eoctl.kafka.connection.failures import Deadline, WireError
from eoctl.kafka.connection.security import Security

CLIENT_ID = "eoctl"
MAX_FRAME = 1 << 28  # bytes; no Kafka broker sends more
FIRST_BYTES = 4 << 20  # allocated before any of a frame has come: its length is only a claim


class _Frames(asyncio.BufferedProtocol):
    """Cuts the byte stream into length-prefixed frames without copying."""

    def __init__(self) -> None:
        self.pending: deque[tuple[int, asyncio.Future[memoryview]]] = deque()
        self.closed: WireError | None = None
        self.cause: Exception | None = None  # how the peer ended it, if the peer did
        self.transport: asyncio.Transport | None = None
        self._length = bytearray(4)
        self._body: bytearray | None = None
        self._claimed = 0  # bytes that the frame will have
        self._got = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._length if self._body is None else self._body)[self._got :]

    def buffer_updated(self, nbytes: int) -> None:
        self._got += nbytes
        if self._body is None:
            if self._got == 4:
                self._begin_frame()
        elif self._got == self._claimed:
            body, self._body, self._got = self._body, None, 0
            self._deliver(memoryview(body))
        elif self._got == len(self._body):
            more = min(self._claimed - self._got, self._got)  # as much as has already come
            self._body = self._body + bytes(more)

    def _begin_frame(self) -> None:
        (length,) = struct.unpack(">i", self._length)
        if not 4 <= length <= MAX_FRAME:
            self.fail(diagnosis.not_kafka(bytes(self._length)))
            return
        self._body, self._claimed, self._got = bytearray(min(length, FIRST_BYTES)), length, 0

    def _deliver(self, body: memoryview) -> None:
        (correlation_id,) = struct.unpack_from(">i", body)
        if not self.pending or self.pending[0][0] != correlation_id:
            self.fail(WireError("NOT_KAFKA", "an answer to a request that was not sent"))
            return
        _, future = self.pending.popleft()
        if not future.done():
            future.set_result(body)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self.closed is None:
            self.cause = exc or EOFError()
        reason = f": {exc}" if exc else ""
        self.fail(WireError("CONNECTION_CLOSED", f"the broker closed the connection{reason}"))

    def fail(self, error: WireError) -> None:
        """End the connection; every open question gets `error`."""
        if self.closed is None:
            self.closed = error
        while self.pending:
            _, future = self.pending.popleft()
            if not future.done():
                future.set_exception(self.closed)
                future.exception()  # mark as seen: its asker may have left at the deadline
        if self.transport is not None:
            self.transport.abort()


def timed_out(request: Any) -> WireError:
    """Return the error of a request that got no answer in time."""
    name = type(request).__name__.removesuffix("Request")
    return WireError("TIMED_OUT", f"no answer to {name} in time")


class Connection:
    """An open, negotiated and authenticated connection to one broker."""

    def __init__(self, frames: _Frames, security: Security) -> None:
        self._frames = frames
        self._security = security
        self._correlation_id = 0
        self._versions: dict[int, tuple[int, int]] = {}
        self.requests_sent = 0
        self.features: dict[str, int] = {}  # finalized, e.g. transaction.version
        self.supported: dict[str, int] = {}  # newest levels, e.g. of metadata.version
        self._answers = 0
        self.renew_at: float | None = None  # monotonic: when to authenticate again (KIP-368)
        self._renewal = asyncio.Lock()

    @classmethod
    async def open(
        cls, host: str, port: int, security: Security, deadline: Deadline
    ) -> "Connection":
        """Connect, negotiate versions, authenticate.

        Raises WireError with one sentence for any failure, within the deadline.
        """
        loop = asyncio.get_running_loop()
        frames = _Frames()
        await security.connect(loop, lambda: frames, host, port, deadline)
        connection = cls(frames, security)
        try:
            await connection._negotiate(deadline)
            await connection._authenticate(deadline)
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def closed(self) -> bool:
        return self._frames.closed is not None

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        """Return what the broker answers: API key → oldest and newest version."""
        return self._versions

    def close(self, cause: WireError | None = None) -> None:
        """End the connection; what is still asked gets the cause."""
        self._frames.fail(cause or WireError("CONNECTION_CLOSED", "closed by eoctl"))

    def supports(self, request_class: Any, version: int = 0) -> bool:
        """Return True if the broker answers this request at `version` or above."""
        low, high = self._versions.get(request_class.API_KEY, (0, -1))
        return low <= high and version <= high

    async def ask(
        self, request: Any, deadline: Deadline, *, least: int = 0, most: int | None = None
    ) -> Any:
        """Return the answer to `request` at the highest version both sides know, in [least, most].

        The answer's own error codes are left to the caller. Raises WireError for no common version,
        no answer before the deadline, or a lost connection.
        """
        self._choose_version(request, least, most)
        await self._keep_authenticated(deadline)
        return await self.exchange(request, deadline)

    async def _authenticate(self, deadline: Deadline) -> None:
        security = self._security
        self.renew_at = await security.authenticate(self.exchange, self.supports, deadline)

    async def _keep_authenticated(self, deadline: Deadline) -> None:
        """Authenticate again before the session's lifetime ends (KIP-368).

        Nothing else may be under way then: pending answers are awaited, and other requests wait
        here.
        """
        if self.renew_at is None or time.monotonic() < self.renew_at:
            return
        try:
            async with asyncio.timeout(deadline.seconds_left), self._renewal:
                if self.renew_at is None or time.monotonic() < self.renew_at:
                    return
                await self._idle()
                try:
                    await self._authenticate(deadline)
                except BaseException:
                    self.close()  # an incomplete exchange makes the connection unusable
                    raise
        except TimeoutError:
            raise WireError("TIMED_OUT", "not authenticated again in time") from None

    async def _idle(self) -> None:
        """Wait until every question has its answer."""
        while self._frames.pending:  # noqa: ASYNC110 - rare and short
            await asyncio.sleep(0.01)

    async def exchange(self, request: Any, deadline: Deadline) -> Any:
        """Send a request with its version set, and return the decoded answer."""
        try:
            answer = await self._exchange(request, deadline)
        except WireError as error:
            cause = self._frames.cause
            raise self._security.explain(error, self._answers, cause) from None
        self._answers += 1
        return answer

    async def _exchange(self, request: Any, deadline: Deadline) -> Any:
        frames = self._frames
        if frames.closed is not None:
            raise frames.closed
        assert frames.transport is not None
        self._correlation_id += 1
        self.requests_sent += 1
        request.with_header(correlation_id=self._correlation_id, client_id=CLIENT_ID)
        future: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        frames.pending.append((self._correlation_id, future))
        frames.transport.write(request.encode(header=True, framed=True))
        answer_class = messages.response_class(request)  # made while the broker works
        try:
            async with asyncio.timeout(deadline.seconds_left):
                body = await future
        except TimeoutError:
            raise timed_out(request) from None
        try:
            answer = answer_class.decode(body, header=True)
        except (ValueError, IndexError, struct.error) as error:
            raise WireError("NOT_KAFKA", f"an answer that cannot be decoded: {error}") from error
        if (field := messages.null_field(answer)) is not None:
            raise WireError(
                "NOT_KAFKA", f"an answer whose {field} is null, which Kafka does not allow"
            )
        return answer

    def _choose_version(self, request: Any, least: int, most: int | None) -> None:
        low, high = self._versions.get(request.API_KEY, (0, -1))
        version = min(high, request.max_version if most is None else most)
        if version < max(low, least):
            name = type(request).__name__.removesuffix("Request")
            raise WireError(
                "UNSUPPORTED_VERSION",
                f"the broker does not answer {name}"
                + (f" version {least} or above" if least else ""),
            )
        request.API_VERSION = version

    async def _negotiate(self, deadline: Deadline) -> None:
        request = messages.ApiVersionsRequest(
            client_software_name=CLIENT_ID, client_software_version="0"
        )
        request.API_VERSION = 3
        answer = await self.exchange(request, deadline)
        if messages.error_name(answer.error_code) == "UNSUPPORTED_VERSION":
            request = messages.ApiVersionsRequest()
            request.API_VERSION = 0
            answer = await self.exchange(request, deadline)
        if answer.error_code:
            raise WireError(messages.error_name(answer.error_code), "ApiVersions was refused")
        self._versions = {k.api_key: (k.min_version, k.max_version) for k in answer.api_keys}
        if not self.supports(messages.MetadataRequest):
            raise diagnosis.controller()
        self.features = {f.name: f.max_version_level for f in answer.finalized_features or ()}
        self.supported = {f.name: f.max_version for f in answer.supported_features or ()}
