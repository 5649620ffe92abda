"""Set up TLS, SASL, host maps and SOCKS of a connection, from one set of properties."""

import asyncio
import os
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from eoctl.host.waiting import dial
from eoctl.kafka.connection import listener as diagnosis
from eoctl.kafka.connection import messages
from eoctl.kafka.connection.failures import Deadline, WireError
from recovery.values import Value

if TYPE_CHECKING:
    from eoctl.kafka.connection.sasl import Mechanism
    from eoctl.kafka.connection.socks import Socks
    from eoctl.kafka.connection.tls import Tls

RENEW_AT = 0.8  # of a session's lifetime (KIP-368)
LEAST_RENEWAL_SECONDS = 1.0  # a broker refuses more frequent renewals

Address = tuple[str, int]
Exchange = Callable[[Any, Deadline], Awaitable[Any]]


class Security(Value):
    """The values of `security.protocol` and its companions. PLAINTEXT by default.

    hosts: advertised address -> reachable address; the certificate is still checked against the
    advertised name. socks: a proxy, which then resolves the names.
    """

    tls: "Tls | None" = None
    sasl: "Mechanism | None" = None
    hosts: Mapping[Address, Address] = {}
    socks: "Socks | None" = None

    async def connect(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        deadline: Deadline,
    ) -> None:
        """Open the TCP connection (and TLS) and hand it to `protocol`. Raises WireError."""
        opened = await self._dial(host, port, deadline)
        context = self.tls.context if self.tls else None
        try:
            async with asyncio.timeout(deadline.seconds_left):
                await loop.create_connection(
                    protocol,
                    sock=opened,
                    ssl=context,
                    server_hostname=host if context else None,
                )
        except TimeoutError:
            opened.close()
            raise diagnosis.silent_tls() from None
        except OSError as error:
            opened.close()
            names = await self._names(host, port, deadline) if diagnosis.wrong_name(error) else ()
            raise diagnosis.tls_failed(error, host, names) from None
        except ValueError:
            opened.close()
            raise WireError("TLS_FAILED", f"no certificate can be for the name {host!r}") from None
        except BaseException:
            opened.close()
            raise

    async def _dial(self, host: str, port: int, deadline: Deadline) -> socket.socket:
        """Return a TCP connection to host:port, by way of the host map and the proxy."""
        reached = self.hosts.get((host, port), (host, port))
        first = (self.socks.host, self.socks.port) if self.socks else reached
        way = "" if first == (host, port) else f" by way of {first[0]}:{first[1]}"
        try:
            async with asyncio.timeout(deadline.seconds_left):
                opened = await dial(*first)
                if self.socks:
                    try:
                        await self.socks.connect(opened, *reached)
                    except BaseException:
                        opened.close()
                        raise
                return opened
        except TimeoutError:
            raise WireError("TIMED_OUT", f"no connection{way} in time") from None
        except (socket.gaierror, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or "it cannot be a host name"
            raise WireError(
                "RESOLVE_FAILED",
                f"{first[0]} has no address: {reason}",
                "check the name, or map it with `hosts` or `socks5` in the context",
            ) from None
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise WireError(
                "CONNECTION_REFUSED",
                f"no connection{way}: {reason}",
                "check the address, and that a broker runs there",
            ) from None

    async def _names(self, host: str, port: int, deadline: Deadline) -> tuple[str, ...]:
        """Return the names in host:port's certificate, () if it cannot be fetched again."""
        assert self.tls is not None
        try:
            opened = await self._dial(host, port, deadline)
        except WireError:
            return ()
        try:
            async with asyncio.timeout(deadline.seconds_left):
                transport, _ = await asyncio.get_running_loop().create_connection(
                    asyncio.Protocol,
                    sock=opened,
                    ssl=self.tls.without_hostname_check(),
                    server_hostname=host,
                )
        except OSError:
            opened.close()
            return ()
        certificate = transport.get_extra_info("peercert") or {}
        transport.abort()
        return tuple(name for _, name in certificate.get("subjectAltName", ()))

    async def authenticate(
        self, exchange: Exchange, supports: Callable[[type, int], bool], deadline: Deadline
    ) -> float | None:
        """Run the SASL exchange, if there is one. Raises WireError AUTHENTICATION_FAILED.

        exchange: sends a request and returns its answer. supports: a request at a version or above.
        Return when to authenticate again (monotonic); None: never.
        """
        if self.sasl is None:
            return None
        # first of all, so that the broker does not wait for a slow source of tokens
        messages_of_sasl = await self.sasl.exchange(deadline)
        await self._choose(self.sasl.name, exchange, deadline)
        kind = messages.SaslAuthenticateRequest
        version = next((v for v in (2, 1) if supports(kind, v)), 0)
        lifetime_ms = 0
        message = next(messages_of_sasl)
        while True:
            request = kind(auth_bytes=message)
            request.API_VERSION = version
            answer = await exchange(request, deadline)
            if answer.error_code:
                raise diagnosis.refused(answer.error_code, answer.error_message, self.sasl.name)
            if version:
                lifetime_ms = answer.session_lifetime_ms
            try:
                message = messages_of_sasl.send(answer.auth_bytes or b"")
            except StopIteration:
                break
        if not lifetime_ms:
            return None
        return time.monotonic() + max(LEAST_RENEWAL_SECONDS, RENEW_AT * lifetime_ms / 1000)

    async def _choose(self, mechanism: str, exchange: Exchange, deadline: Deadline) -> None:
        request = messages.SaslHandshakeRequest(mechanism=mechanism)
        request.API_VERSION = 1
        answer = await exchange(request, deadline)
        if answer.error_code:
            raise diagnosis.mechanism_refused(answer.error_code, mechanism, answer.mechanisms or ())

    def explain(self, error: WireError, answers: int, cause: Exception | None) -> WireError:
        """Return an error with its likely cause, if known.

        answers: how many came before; cause: what ended the connection, if an exception did.
        """
        if isinstance(cause, ssl.SSLError):
            return diagnosis.tls_failed(cause)
        if answers == 0 and error.error == "TIMED_OUT":
            return diagnosis.silent()
        if cause is None:
            return error
        if answers == 0:
            return diagnosis.closed_at_once(tls=self.tls is not None)
        if answers == 1 and self.sasl is None:
            return diagnosis.closed_without_sasl("SSL" if self.tls else "PLAINTEXT")
        return error
