"""How what somebody typed is named in an error: on one line, without controls, not endless."""


def quoted(given: str) -> str:
    """At most 60 characters of it, in quotes, controls and invisible characters escaped."""
    return repr(given if len(given) <= 60 else given[:59] + "…")
