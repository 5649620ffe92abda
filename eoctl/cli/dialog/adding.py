"""The questions of `context add`: on stderr, answered on a terminal. Each has a default."""

import getpass
import sys
from collections.abc import Sequence

from eoctl.kafka.connection.property_names import ELSEWHERE
from recovery.errors import UsageError

PROTOCOLS = {
    "none": "PLAINTEXT",
    "tls": "SSL",
    "password": "SASL_PLAINTEXT",
    "password+tls": "SASL_SSL",
}
"""What a person calls it → security.protocol."""
READ_ONLY = "Read-only, so that nothing is changed there from here: yes, no"
MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")


def question(text: str, default: str = "", among: Sequence[str] = ()) -> str:
    """Ask until the answer is one of `among`, if given. Raises UsageError at the end of input."""
    while True:
        sys.stderr.write(f"{text}{f' [{default}]' if default else ''}: ")
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            raise UsageError("the questions were not answered to the end")
        answer = line.strip() or default
        if answer and (not among or answer in among):
            return answer
        sys.stderr.write(f"one of {', '.join(among)}\n" if among else "this must be answered\n")


def cluster() -> tuple[dict[str, str], bool]:
    """Ask for the client properties of a cluster; and whether a password in them was typed now."""
    properties = {"bootstrap.servers": question("Servers, as b1:9092,b2:9092")}
    security = question(f"Security: {', '.join(PROTOCOLS)}", "none", tuple(PROTOCOLS))
    if security != "none":
        properties["security.protocol"] = PROTOCOLS[security]
    if "tls" in security:
        authority = question("File with the CA's certificates (PEM), or `system`", "system")
        if authority != "system":
            properties["ssl.ca.location"] = authority
    if "password" not in security:
        return properties, False
    mechanism = question(f"Mechanism: {', '.join(MECHANISMS)}", MECHANISMS[0], MECHANISMS)
    properties["sasl.mechanism"] = mechanism
    properties["sasl.username"] = question("User name")
    where = question("Password: env:NAME, file:PATH, or `type` to type it now", "type")
    typed = not ELSEWHERE.match(where)
    if typed and where != "type":
        raise UsageError("neither env:NAME nor file:PATH", where="password", remedy="answer `type`")
    if typed:
        where = getpass.getpass("Password (not shown; kept in a file that only you can read): ")
    properties["sasl.password"] = where
    return properties, typed
