"""The extras of the package that are installed here, found without importing them."""

from importlib.util import find_spec

from eoctl.host.program import ONE_FILE
from recovery.errors import UsageError

PACKAGES = {
    "data": ("numpy", "pyarrow"),
    "sql": ("sqlalchemy",),
    "spark": ("pyspark", "pandas"),
    "lab": ("pyspark", "cryptography"),
    "serde": ("fastavro",),
    "msk": ("aws_msk_iam_sasl_signer",),
    "exporter": ("prometheus_client",),
    "web": ("websockets",),
    "mcp": ("mcp",),
}
"""Extra → what it brings to import. The first extra that has a package is the one to install."""


def installed(package: str) -> bool:
    """Return True if a package can be found."""
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def need(extra: str, what: str) -> None:
    """Raise UsageError, which names the extra, if one of its packages is not installed."""
    if not all(map(installed, PACKAGES[extra])):
        raise missing(extra, what)


def missing(extra: str, what: str) -> UsageError:
    """Return the error for something that needs an extra which is not installed."""
    if ONE_FILE:
        return UsageError(
            f"{what} needs the extra {extra!r}, which the one-file eoctl does not have",
            remedy=f"pip install 'eoctl[{extra}]' where there is a Python 3.11 or newer",
        )
    return UsageError(
        f"{what} needs the extra {extra!r}, which is not installed",
        remedy=f"pip install 'eoctl[{extra}]'",
    )


def extra_of(error: BaseException) -> str | None:
    """Return the extra with the package that an import lacked, or None."""
    if not isinstance(error, ModuleNotFoundError):
        return None
    package = (error.name or "").partition(".")[0]
    return next((extra for extra, packages in PACKAGES.items() if package in packages), None)
