"""Brokers behind a SOCKS 5 proxy (RFC 1928, RFC 1929), a small real one."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from eoctl.kafka.connection import messages
from eoctl.kafka.connection.failures import Deadline, WireError
from eoctl.kafka.connection.properties import client_settings
from eoctl.kafka.connection.wire import Connection
from eoctl.lab.cluster import Lab


@dataclass
class Proxy:
    """login: (user, password) it insists on. names: what it resolves. asked: (kind, name, port)."""

    names: dict[str, tuple[str, int]]
    login: tuple[str, str] | None = None
    asked: list[tuple[int, str, int]] = field(default_factory=list)
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._negotiate(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _negotiate(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        version, count = await reader.readexactly(2)
        assert version == 5
        method = 2 if self.login else 0
        if method not in await reader.readexactly(count):
            writer.write(b"\x05\xff")
            return
        writer.write(bytes([5, method]))
        if self.login:
            (_, length) = await reader.readexactly(2)
            user = await reader.readexactly(length)
            password = await reader.readexactly((await reader.readexactly(1))[0])
            right = (user.decode(), password.decode()) == self.login
            writer.write(b"\x01\x00" if right else b"\x01\x01")
            if not right:
                return
        _, command, _, kind = await reader.readexactly(4)
        assert command == 1
        if kind == 3:
            name = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        else:
            family, size = (socket.AF_INET, 4) if kind == 1 else (socket.AF_INET6, 16)
            name = socket.inet_ntop(family, await reader.readexactly(size))
        (port,) = struct.unpack(">H", await reader.readexactly(2))
        self.asked.append((kind, name, port))
        target = self.names.get(f"{name}:{port}")
        if target is None:
            writer.write(b"\x05\x04\x00\x01" + bytes(6))
            return
        there, back = await asyncio.open_connection(*target)
        # bound address as a name: its length differs from that of an address
        writer.write(b"\x05\x00\x00\x03\x04here\x00\x50")
        await asyncio.gather(_pump(reader, back), _pump(there, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def running(proxy: Proxy) -> AsyncIterator[Proxy]:
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    async with server:
        yield proxy


def through(
    lab: Lab, proxy: Proxy, login: str = "", listener: str = "WRONG_HOST", server: str = ""
) -> int:
    """Brokers seen at kafka.example:9093, a name that only the proxy can resolve."""

    async def look() -> int:
        async with running(proxy):
            properties = lab.client_properties("viewer", listener)
            properties["bootstrap.servers"] = server or "kafka.example:9093"
            given = client_settings(properties, socks5=f"{login}127.0.0.1:{proxy.port}")
            connection = await Connection.open(
                *given.bootstrap_servers[0], given.security, Deadline(4)
            )
            question = messages.MetadataRequest(topics=[], allow_auto_topic_creation=False)
            answer = await connection.ask(question, Deadline(4), most=8)
            connection.close()
            await asyncio.sleep(0.1)  # the proxy's pumps end
            return len(answer.brokers)

    return asyncio.run(look())


@pytest.fixture
def names(secure_lab: Lab) -> dict[str, tuple[str, int]]:
    ports = secure_lab.record.nodes[0].ports
    return {
        "kafka.example:9093": ("127.0.0.1", ports["WRONG_HOST"]),
        "127.0.0.1:9092": ("127.0.0.1", ports["SCRAM"]),
        "::1:9092": ("127.0.0.1", ports["SCRAM_TEXT"]),
    }


def test_the_proxy_resolves_the_name_and_the_certificate_is_checked_against_it(
    secure_lab: Lab, names: dict[str, tuple[str, int]]
) -> None:
    proxy = Proxy(names)
    assert through(secure_lab, proxy) == 1
    assert proxy.asked == [(3, "kafka.example", 9093)]


def test_a_login(secure_lab: Lab, names: dict[str, tuple[str, int]]) -> None:
    assert through(secure_lab, Proxy(names, ("me", "p@ss:word")), "me:p@ss:word@") == 1


@pytest.mark.parametrize(
    ("server", "listener", "kind"),
    [("127.0.0.1:9092", "SCRAM", 1), ("[::1]:9092", "SCRAM_TEXT", 4)],
)
def test_addresses(
    secure_lab: Lab, names: dict[str, tuple[str, int]], server: str, listener: str, kind: int
) -> None:
    proxy = Proxy(names)
    assert through(secure_lab, proxy, listener=listener, server=server) == 1
    assert proxy.asked[0][0] == kind


@pytest.mark.parametrize(
    ("login", "given", "server", "said"),
    [
        (("me", "pw"), "me:wrong-pw@", "", "it refused the login"),
        (("me", "pw"), "", "", "it wants a login that it was not given"),
        (None, "", "elsewhere.example:1", "host unreachable (elsewhere.example:1)"),
    ],
)
def test_a_proxy_that_refuses(
    secure_lab: Lab,
    names: dict[str, tuple[str, int]],
    login: tuple[str, str] | None,
    given: str,
    server: str,
    said: str,
) -> None:
    proxy = Proxy(names, login)
    with pytest.raises(WireError) as caught:
        through(secure_lab, proxy, given, server=server)
    assert caught.value.error == "CONNECTION_REFUSED"
    assert caught.value.detail == f"SOCKS proxy 127.0.0.1:{proxy.port}: {said}"


def test_a_proxy_that_is_something_else(secure_lab: Lab) -> None:
    """A broker's port as proxy, and one that never answers."""

    async def look(port: int) -> WireError:
        given = client_settings({"bootstrap.servers": "b:1"}, socks5=f"127.0.0.1:{port}")
        with pytest.raises(WireError) as caught:
            await Connection.open("b", 1, given.security, Deadline(1))
        return caught.value

    broker = asyncio.run(look(secure_lab.record.nodes[0].ports["PLAINTEXT"]))
    assert broker.error in ("CONNECTION_REFUSED", "TIMED_OUT")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        found = asyncio.run(look(port))
    assert found.detail == f"no connection by way of 127.0.0.1:{port} in time"
