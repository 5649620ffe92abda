"""Where the program of `make binary` starts: first what a packed Python must put right."""

import os
import ssl
import sys
from pathlib import Path

CERTIFICATES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Alpine
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",  # SUSE
)


def _libraries_for_children() -> None:
    """What is started from here (a token command, a shell) has its own libraries, not the packed
    ones, whose folder PyInstaller's start puts in front."""
    before = os.environ.pop("LD_LIBRARY_PATH_ORIG", None)
    os.environ.pop("LD_LIBRARY_PATH", None)
    if before:
        os.environ["LD_LIBRARY_PATH"] = before


def _certificates_of_this_host() -> None:
    """The packed OpenSSL looks where the host that it was built on keeps certificates."""
    paths = ssl.get_default_verify_paths()
    if paths.cafile is None and "SSL_CERT_FILE" not in os.environ:
        found = next((path for path in CERTIFICATES if Path(path).exists()), None)
        if found is not None:
            os.environ["SSL_CERT_FILE"] = found


_libraries_for_children()
_certificates_of_this_host()
sys.argv[0] = "eoctl"  # as people type it: the folder it is unpacked to is nobody's concern

from eoctl.__main__ import main  # noqa: E402  # after the environment is put right

main()
