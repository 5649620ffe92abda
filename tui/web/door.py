"""Who may come in: the address that a browser asked for, the page that sent it, and the token."""

import hmac
import secrets
from collections.abc import Mapping
from urllib.parse import urlsplit

from eoctl.operations.watch.endpoint import is_loopback, parse_address
from recovery.errors import RefusedError, UsageError
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
        if self.proxy is not None and peer != self.proxy:
            return Refusal(403, "only the trusted proxy may connect")
        if len(host) != 1 or host[0].lower() not in {urlsplit(o).netloc for o in self.origins}:
            return Refusal(403, "this Host is not served here")
        if any(given.lower() not in self.origins for given in origin):
            return Refusal(403, "another site's page may not connect")
        token, _, rest = path.partition("?")[0].removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(), self.token.encode()):
            return Refusal(404, "not found; the address needs the token that eoctl printed")
        if rest == WEBSOCKET and len(origin) != 1:
            return Refusal(403, "a browser names its page's Origin; this did not")
        return None


class Listening(Value):
    """Where to listen, and what of the network is trusted. url: how browsers reach it."""

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
            return Door(frozenset({origin_of(self.url)}), token, self.proxy)
        host = f"[{self.host}]" if ":" in self.host else self.host
        names = {host, "localhost"} if is_loopback(self.host) else {host}
        origins = frozenset(origin_of(f"{self.scheme}://{name}:{port}") for name in names)
        return Door(origins, token, self.proxy)

    def address(self, door: Door, port: int) -> str:
        """Return the address that people open."""
        if self.url is not None:
            return f"{self.url.rstrip('/')}/{door.token}/"
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


def listening(given: Mapping[str, str | None]) -> Listening:
    """Return where to listen. given: listen, certificate, key, proxy, url.

    Raise UsageError for options that do not fit together, RefusedError for an address that others
    reach without TLS or a named proxy.
    """
    host, port = parse_address(given["listen"] or "127.0.0.1:8080")
    certificate, key, proxy, url = (given[k] for k in ("certificate", "key", "proxy", "url"))
    if (certificate is None) != (key is None):
        raise UsageError("a certificate needs its key", where="--certificate, --key")
    if proxy is not None and (url is None or not url.startswith("https://")):
        remedy = "--url https://NAME/"
        raise UsageError("how do browsers reach the proxy?", where="--proxy", remedy=remedy)
    if url is not None and urlsplit(url).path not in ("", "/"):
        raise UsageError("a path is not supported", where="--url", remedy="https://NAME/")
    if url is not None and (not urlsplit(url).netloc or urlsplit(url).scheme not in _SCHEMES):
        raise UsageError(f"{url!r} is no address", where="--url", remedy="https://NAME/")
    if is_loopback(host):
        return Listening(host, port, certificate, key, proxy, url)
    if certificate is None and proxy is None:
        raise RefusedError(
            "others could read along: without TLS eoctl listens on this machine only",
            where="--listen",
            remedy="--certificate FILE --key FILE, or --proxy ADDRESS --url https://NAME/",
        )
    if host in ("0.0.0.0", "::") and url is None:  # noqa: S104
        remedy = "--url https://NAME:PORT/"
        raise UsageError("under which name do browsers reach it?", where="--listen", remedy=remedy)
    return Listening(host, port, certificate, key, proxy, url)
