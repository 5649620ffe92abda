"""How what somebody typed is named in an error, and addresses as a command line takes them."""

from collections.abc import Iterable, Sequence


def quoted(given: str) -> str:
    """At most 60 characters of it, in quotes, controls and invisible characters escaped."""
    return repr(given if len(given) <= 60 else given[:59] + "…")


def addresses(servers: Iterable[tuple[str, int]]) -> str:
    """Join (host, port) pairs to `host:port,host:port`; IPv6 addresses stand in brackets."""
    return ",".join(f"[{h}]:{port}" if ":" in h else f"{h}:{port}" for h, port in servers)


def some(names: Sequence[str], most: int = 3) -> str:
    """Join names to `a, b, c and 4 more`."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
