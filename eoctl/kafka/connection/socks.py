"""Connect through a jump host's proxy with SOCKS version 5 (RFC 1928, RFC 1929)."""

import asyncio
import ipaddress
import socket
import struct

from eoctl.kafka.connection.credentials import Secret
from eoctl.kafka.connection.failures import WireError
from recovery.values import Value

NO_LOGIN, LOGIN = 0, 2
REPLIES = {
    1: "general failure",
    2: "its rules do not allow this connection",
    3: "network unreachable",
    4: "host unreachable",
    5: "connection refused",
    6: "the connection took too long",
    7: "it does not support CONNECT",
    8: "it does not support this kind of address",
}


class Socks(Value):
    """A proxy at host:port, with a login or without."""

    host: str
    port: int
    user: str | None = None
    password: Secret | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    async def connect(self, opened: socket.socket, host: str, port: int) -> None:
        """Have the proxy at the end of `opened` connect to host:port; it resolves the name.

        Raises WireError CONNECTION_REFUSED with the proxy's reason.
        """
        loop = asyncio.get_running_loop()
        methods = bytes([NO_LOGIN, LOGIN] if self.user else [NO_LOGIN])
        await loop.sock_sendall(opened, bytes([5, len(methods)]) + methods)
        version, method = await self._read(opened, 2)
        if version != 5:
            raise self._failed("it does not speak SOCKS version 5")
        if method == LOGIN and self.user:
            await self._log_in(opened, self.user)
        elif method != NO_LOGIN:
            raise self._failed("it wants a login that it was not given")
        try:
            target = _address(host)
        except UnicodeError:
            raise self._failed(f"{host!r} cannot be a host name") from None
        await loop.sock_sendall(opened, b"\x05\x01\x00" + target + struct.pack(">H", port))
        _, reply, _, kind = await self._read(opened, 4)
        if reply:
            raise self._failed(f"{REPLIES.get(reply, f'reply {reply}')} ({host}:{port})")
        length = {1: 4, 4: 16}.get(kind) or (await self._read(opened, 1))[0]
        await self._read(opened, length + 2)

    async def _log_in(self, opened: socket.socket, user: str) -> None:
        name, password = user.encode(), self.password.reveal().encode() if self.password else b""
        if len(name) > 255 or len(password) > 255:
            raise self._failed("its login cannot be longer than 255 bytes")
        message = bytes([1, len(name)]) + name + bytes([len(password)]) + password
        await asyncio.get_running_loop().sock_sendall(opened, message)
        if (await self._read(opened, 2))[1]:
            raise self._failed("it refused the login")

    async def _read(self, opened: socket.socket, count: int) -> bytes:
        loop = asyncio.get_running_loop()
        read = b""
        while len(read) < count:
            piece = await loop.sock_recv(opened, count - len(read))
            if not piece:
                raise self._failed("it closed the connection")
            read += piece
        return read

    def _failed(self, why: str) -> WireError:
        return WireError(
            "CONNECTION_REFUSED",
            f"SOCKS proxy {self.address}: {why}",
            "check socks5 of the context",
        )


def _address(host: str) -> bytes:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        name = host.encode("idna")
        return bytes([3, len(name)]) + name
    return bytes([1 if address.version == 4 else 4]) + address.packed
