"""How what somebody typed is named in an error, and addresses as a command line takes them."""

from collections.abc import Iterable


def quoted(given: str) -> str:
    """At most 60 characters of it, in quotes, controls and invisible characters escaped."""
    return repr(given if len(given) <= 60 else given[:59] + "…")


def addresses(servers: Iterable[tuple[str, int]]) -> str:
    """Join (host, port) pairs to `host:port,host:port`; IPv6 addresses stand in brackets."""
    return ",".join(f"[{h}]:{port}" if ":" in h else f"{h}:{port}" for h, port in servers)
