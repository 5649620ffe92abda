"""Turn client properties, Java's or librdkafka's, into one set of settings for both clients.

`read_properties` reads a file, `client_settings` gives it meaning, `librdkafka_properties` writes
the same meaning down for confluent-kafka.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from eoctl.kafka.connection.credentials import Secret, resolve, resolved_if_there
from eoctl.kafka.connection.property_names import LIBRDKAFKA_ONLY, SECRET_KEY, refuse_misspelt
from eoctl.kafka.connection.security import Security
from recovery.errors import UsageError
from recovery.formats.records import EXPANDED_PROPERTY
from recovery.quoting import addresses
from recovery.sizes import byte_rate
from recovery.values import Value

if TYPE_CHECKING:
    from eoctl.kafka.connection.sasl import Mechanism
    from eoctl.kafka.connection.socks import Socks
    from eoctl.kafka.connection.tls import Tls

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
DEFAULT_PORT = 9092
DEFAULT_REQUEST_TIMEOUT_MS = 3000
RACK_PROPERTY = "client.rack"


class Properties(dict[str, str]):
    """Client properties with a repr that shows no secret."""

    def __repr__(self) -> str:
        return repr({k: "***" if SECRET_KEY.search(k) else v for k, v in self.items()})


class ClientSettings(Value):
    """The settings with which both clients reach a cluster. Made by `client_settings`.

    bootstrap_servers: (host, port). protocol: one of PROTOCOLS. request_timeout_ms: how long one
    broker may stay silent. tls and sasl are None if the protocol has none. security: what the wire
    connection does with them, and with hosts and socks5, which only it supports. most_expanded:
    bytes that the records of one batch may expand to, None: as many as usual. client_rack: the
    reader's rack (KIP-392), "": none.
    """

    bootstrap_servers: tuple[tuple[str, int], ...]
    protocol: str = "PLAINTEXT"
    request_timeout_ms: int = DEFAULT_REQUEST_TIMEOUT_MS
    tls: "Tls | None" = None
    sasl: "Mechanism | None" = None
    security: Security = Security()
    most_expanded: int | None = None
    client_rack: str = ""


def read_properties(text: str, path: str) -> Properties:
    """Return the properties in a client's file. path: for errors only.

    Java's format (java.util.Properties: escapes, continuation lines, `=`, `:` or blanks, `#` and
    `!` comments), or librdkafka's (`key=value` lines, backslashes mean themselves) if the file has
    a key that only librdkafka knows. Raises UsageError, which quotes no value.
    """
    properties = Properties()
    for number, line in _logical_lines(text):
        key, value = _split(line)
        properties[_unescape(key, path, number)] = _unescape(value, path, number)
    if LIBRDKAFKA_ONLY.isdisjoint(properties):
        return properties
    properties = Properties()
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        key, equals, value = stripped.partition("=")
        if not equals or not key.strip():
            raise UsageError(
                "this line is not key=value",
                where=f"{path}, line {number}",
                remedy="a file with librdkafka's names has no continuation lines",
            )
        properties[key.strip()] = value.strip()
    return properties


_BLANKS = " \t\f"


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Return (number of the first line, text) with continuation lines joined, without comments."""
    lines: list[tuple[int, str]] = []
    held, held_number = "", 0
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = raw.lstrip(_BLANKS)
        if not held_number and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        held_number = held_number or number
        if backslashes % 2:
            held += line[:-1]
            continue
        lines.append((held_number, held + line))
        held, held_number = "", 0
    if held_number and held:
        lines.append((held_number, held))
    return lines


def _split(line: str) -> tuple[str, str]:
    match = re.match(r"((?:[^\\=:\s]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", line, re.DOTALL)
    assert match is not None
    return match[1], match[2]


def _unescape(text: str, path: str, number: int) -> str:
    def one(match: re.Match[str]) -> str:
        letter = match[1]
        if letter[0] == "u":
            if len(letter) != 5:
                raise UsageError(
                    "a \\u escape needs four hexadecimal digits", where=f"{path}, line {number}"
                )
            return chr(int(letter[1:], 16))
        return {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(letter, letter)

    plain = re.sub(r"\\(u[0-9a-fA-F]{0,4}|.)", one, text)
    # two \u escapes may form one character above U+FFFF (surrogates)
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def client_settings(
    properties: Mapping[str, str],
    *,
    hosts: Mapping[str, str] | None = None,
    socks5: str | None = None,
) -> ClientSettings:
    """Interpret the properties of either client; secrets in env: and file: are read.

    hosts: {"advertised:port": "reachable:port"}; socks5: "[user:password@]host:port".
    `token_command` among the properties is a command line that prints a token. Properties of
    producers and consumers only are ignored, except client.rack; unknown ones about security are
    not. Raises UsageError. Sends nothing and reads only named files.
    """
    refuse_misspelt(properties)
    given = {key: value.strip() for key, value in properties.items()}
    protocol = given.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise UsageError(
            f"{protocol!r} is not a protocol of Kafka",
            where="security.protocol",
            remedy=f"write one of {', '.join(PROTOCOLS)}",
        )
    servers = parse_servers(given.get("bootstrap.servers") or given.get("metadata.broker.list", ""))
    tls = sasl = None
    if protocol.endswith("SSL"):
        from eoctl.kafka.connection.tls import tls_settings

        tls = tls_settings(given)
    if protocol.startswith("SASL"):
        from eoctl.kafka.connection.mechanisms import sasl_mechanism

        sasl = sasl_mechanism(given, servers[0][0])
    return ClientSettings(
        bootstrap_servers=servers,
        protocol=protocol,
        request_timeout_ms=_milliseconds(given, "request.timeout.ms", DEFAULT_REQUEST_TIMEOUT_MS),
        tls=tls,
        sasl=sasl,
        security=Security(
            tls=tls,
            sasl=sasl,
            hosts=_host_map(hosts or {}),
            socks=_socks(socks5) if socks5 else None,
        ),
        most_expanded=_most_expanded(given),
        # the driver may lack a variable that its executors have
        client_rack=resolved_if_there(given.get(RACK_PROPERTY, "")),
    )


def _most_expanded(given: Mapping[str, str]) -> int | None:
    """Return eoctl's own property, the only one of its kind."""
    for key in given:
        if key.startswith("eoctl.") and key != EXPANDED_PROPERTY:
            raise UsageError(
                "no such property", where=key, remedy=f"did you mean {EXPANDED_PROPERTY}?"
            )
    if (text := given.get(EXPANDED_PROPERTY)) is None:
        return None
    return int(byte_rate(text, where=EXPANDED_PROPERTY))


def librdkafka_properties(settings: ClientSettings) -> Properties:
    """Return these settings in librdkafka's names. A token comes through oauth_cb (confluent.py).

    Raises UsageError for a host map or SOCKS proxy: librdkafka has neither.
    """
    if settings.security.hosts or settings.security.socks:
        raise UsageError(
            "a host map or a SOCKS proxy works only for commands that query brokers, "
            "and this one reads or writes records through librdkafka",
            remedy="run it where the brokers' advertised names can be reached",
        )
    properties = Properties(
        {
            "bootstrap.servers": addresses(settings.bootstrap_servers),
            "security.protocol": settings.protocol,
        }
    )
    if settings.tls is not None:
        properties |= settings.tls.librdkafka_properties()
    if settings.sasl is not None:
        from eoctl.kafka.connection.sasl import Plain, Scram

        properties["sasl.mechanism"] = settings.sasl.name
        if isinstance(settings.sasl, Plain | Scram):
            properties["sasl.username"] = settings.sasl.username
            properties["sasl.password"] = settings.sasl.password.reveal()
    return properties


_SERVER = re.compile(r"(?:[A-Za-z][A-Za-z0-9+._-]*://)?(?:\[([^\]]+)\]|([^:\[\]]+))(?::(\d+))?")


def parse_servers(text: str) -> tuple[tuple[str, int], ...]:
    """Return (host, port) of each server in "host:port,[::1]:9093,host". Raises UsageError."""
    servers: dict[tuple[str, int], None] = {}
    for entry in (part.strip() for part in text.split(",")):
        if entry:
            servers[parse_server(entry, "bootstrap.servers")] = None
    if not servers:
        raise UsageError("no bootstrap server is named", remedy="give --bootstrap-server HOST:PORT")
    return tuple(servers)


def parse_server(entry: str, where: str) -> tuple[str, int]:
    """Return (host, port) of one server, port 9092 if none is given. Raises UsageError."""
    match = _SERVER.fullmatch(entry)
    port = int(match[3] or DEFAULT_PORT) if match else 0
    if match is None or not 0 < port < 65536:
        raise UsageError(
            f"{entry!r} is not HOST:PORT", where=where, remedy="write an IPv6 address as [::1]:9092"
        )
    return (match[1] or match[2]).strip(), port


def _milliseconds(given: Mapping[str, str], key: str, default: int) -> int:
    text = given.get(key)
    if text is None:
        return default
    if not text.isdecimal() or int(text) == 0:
        raise UsageError(f"{text!r} is not a number of milliseconds above 0", where=key)
    return int(text)


def _host_map(hosts: Mapping[str, str]) -> dict[tuple[str, int], tuple[str, int]]:
    return {
        parse_server(advertised, "hosts"): parse_server(reachable, "hosts")
        for advertised, reachable in hosts.items()
    }


def _socks(text: str) -> "Socks":
    from eoctl.kafka.connection.socks import Socks

    address = resolve(text, "socks5").removeprefix("socks5h://").removeprefix("socks5://")
    login, _, server = address.rpartition("@")
    user, colon, password = login.partition(":")
    if login and not (user and colon):
        raise UsageError("the login is not USER:PASSWORD@", where="socks5")
    try:
        host, port = parse_server(server if ":" in server else f"{server}:1080", "socks5")
    except UsageError:  # it may quote a password
        raise UsageError("it is not [USER:PASSWORD@]HOST:PORT", where="socks5") from None
    return Socks(host, port, user or None, Secret(password) if login else None)
