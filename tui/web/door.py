"""Who may come in: the address that a browser asked for, the page that sent it, and the token."""

import hmac
import ipaddress
import secrets
from collections.abc import Mapping
from urllib.parse import urlsplit

from eoctl.operations.watch.endpoint import is_loopback, parse_address
from recovery.errors import RefusedError, UsageError
from recovery.quoting import quoted
from recovery.values import Value

_SCHEMES = ("http", "https")
WEBSOCKET = "ws"
"""The path of the connection, after the token."""


class Refusal(Value):
    """Why somebody is not let in. status: of HTTP."""

    status: int
    sentence: str


class Door(Value):
    """origins: SCHEME://HOST[:PORT] as browsers write them. proxy: the only peer that may come."""

    origins: frozenset[str]
    token: str
    proxy: str | None = None

    def refusal(self, peer: str, path: str, host: list[str], origin: list[str]) -> Refusal | None:
        """Return why a request is refused, or None. host, origin: these headers, however many.

        Pages and the connection want the token; the connection wants the page's origin as well.
        """
        if self.proxy is not None and address_of(peer) != self.proxy:
            return Refusal(403, "only the trusted proxy may connect")
        if len(host) != 1 or host[0].lower() not in {urlsplit(o).netloc for o in self.origins}:
            return Refusal(403, "this Host is not served here")
        if any(given.lower() not in self.origins for given in origin):
            return Refusal(403, "another site's page may not connect")
        token, _, rest = path.partition("?")[0].removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(errors="replace"), self.token.encode()):
            return Refusal(404, "not found; the address needs the token that eoctl printed")
        if rest == WEBSOCKET and len(origin) != 1:
            return Refusal(403, "a browser names its page's Origin; this did not")
        return None


class Listening(Value):
    """Where to listen, and what of the network is trusted. url: the origin of browsers' pages."""

    host: str
    port: int
    certificate: str | None = None
    key: str | None = None
    proxy: str | None = None
    url: str | None = None

    @property
    def scheme(self) -> str:
        return "https" if self.certificate else "http"

    def door(self, port: int) -> Door:
        """Return the door of what listens on this port, with a new token."""
        token = secrets.token_urlsafe(32)
        if self.url is not None:
            return Door(frozenset({self.url}), token, self.proxy)
        host = f"[{self.host}]" if ":" in self.host else self.host
        names = {host, "localhost"} if is_loopback(self.host) else {host}
        origins = frozenset(origin_of(f"{self.scheme}://{name}:{port}") for name in names)
        return Door(origins, token, self.proxy)

    def address(self, door: Door, port: int) -> str:
        """Return the address that people open."""
        if self.url is not None:
            return f"{self.url}/{door.token}/"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{port}/{door.token}/"


def origin_of(url: str) -> str:
    """Return SCHEME://HOST[:PORT] as browsers write it: small letters, no port of the scheme's own.

    >>> origin_of("https://Dash.example:443/")
    'https://dash.example'
    """
    parts = urlsplit(url.lower())
    own = {"http": ":80", "https": ":443"}.get(parts.scheme, "")
    return f"{parts.scheme}://{parts.netloc.removesuffix(own)}"


def address_of(text: str) -> str | None:
    """Return an IP address in the one way of writing it, or None if the text is none.

    >>> address_of("::ffff:10.0.0.5")
    '10.0.0.5'
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return str(getattr(address, "ipv4_mapped", None) or address)


def _origin(url: str) -> str:
    """Return the origin of --url. Raise UsageError if it is more than that, or none."""
    try:
        parts = urlsplit(url)
        is_origin = bool(parts.hostname) and parts.port != 0 and parts.scheme in _SCHEMES
    except ValueError:
        is_origin = False
    plain = url.isascii() and url.isprintable() and {*url}.isdisjoint("@?# \\%")
    if not is_origin or not plain or parts.path not in ("", "/"):
        words = f"{quoted(url)} is no SCHEME://NAME[:PORT]/"
        raise UsageError(words, where="--url", remedy="https://NAME/")
    return origin_of(url)


def listening(given: Mapping[str, str | None]) -> Listening:
    """Return where to listen. given: listen, certificate, key, proxy, url.

    Raise UsageError for options that do not fit together, RefusedError for an address that others
    reach without TLS or a named proxy.
    """
    host, port = parse_address(given["listen"] or "127.0.0.1:8080")
    certificate, key, proxy, url = (given[k] for k in ("certificate", "key", "proxy", "url"))
    if (certificate is None) != (key is None):
        raise UsageError("a certificate needs its key", where="--certificate, --key")
    url = None if url is None else _origin(url)
    is_secure = url is None or url.startswith("https://")
    if proxy is not None:
        if url is None or not is_secure:
            remedy = "--url https://NAME/"
            raise UsageError("how do browsers reach the proxy?", where="--proxy", remedy=remedy)
        if (proxy := address_of(proxy)) is None:
            raise UsageError("is no IP address", where="--proxy", remedy="--proxy 127.0.0.1")
    if certificate is not None and not is_secure:
        raise UsageError("with a certificate it is https", where="--url", remedy="https://NAME/")
    for where, name in (("--listen", host), ("--url", urlsplit(url or "").hostname)):
        _refuse_open(where, name, has_tls=is_secure and not (certificate is proxy is None))
    if host in ("0.0.0.0", "::") and url is None:  # noqa: S104
        remedy = "--url https://NAME:PORT/"
        raise UsageError("under which name do browsers reach it?", where="--listen", remedy=remedy)
    return Listening(host, port, certificate, key, proxy, url)


def _refuse_open(where: str, name: str | None, *, has_tls: bool) -> None:
    """Raise RefusedError if others than this machine reach the name, and without TLS."""
    if name is not None and not has_tls and not is_loopback(name):
        raise RefusedError(
            "others could read along: without TLS eoctl listens on this machine only",
            where=where,
            remedy="--certificate FILE --key FILE, or --proxy ADDRESS --url https://NAME/",
        )
