"""Quote what somebody typed in an error, and write addresses as a command line takes them."""

import re
from collections.abc import Iterable, Mapping, Sequence


def quoted(given: str) -> str:
    """Return at most 60 characters in quotes, with control and invisible characters escaped.

    The password in a URL is hidden first, since cutting could show a part of it.
    """
    given = without_passwords(given)
    return repr(given if len(given) <= 60 else given[:59] + "…")


def without_passwords(text: str) -> str:
    """Hide the password of each URL.

    >>> without_passwords("http://u:secret@h/x")
    'http://u:***@h/x'
    """
    return re.sub(r"(://[^\s/:@]*):\S*@", r"\1:***@", text)


def addresses(servers: Iterable[tuple[str, int]]) -> str:
    """Join (host, port) pairs to `host:port,host:port`; IPv6 addresses are in brackets."""
    return ",".join(f"[{h}]:{port}" if ":" in h else f"{h}:{port}" for h, port in servers)


def some(names: Sequence[str], most: int = 3, number: int | None = None) -> str:
    """Join names to `a, b, c and 4 more`. number: of all names, if only the first are given.

    >>> some(["a", "b"], 3, number=9)
    'a, b and 7 more'
    """
    more = (len(names) if number is None else number) - min(most, len(names))
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def value_words(value: object) -> str:
    """Return a fact as JSON, except that a text within it keeps its quotes unescaped.

    The metadata of a commit is often JSON itself, and librdkafka ends it with a NUL.

    >>> print(value_words({"offset": 7, "metadata": '{"output": 3}\\0'}))
    {"offset": 7, "metadata": '{"output": 3}'}
    """
    import json

    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{json.dumps(k)}: {value_words(v)}' for k, v in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(value_words, value))}]"
    if isinstance(value, str) and '"' in (text := value.removesuffix("\0")):
        return f"'{text}'"
    return json.dumps(value)
