"""All errors. Each says what happened, where, and the remedy; its type gives the exit status.

Only `eoctl.cli.main` prints them. Nothing else ends the process.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum

from recovery.quoting import addresses, without_passwords


class Exit(IntEnum):
    """Exit statuses of every command (docs/interface.md, "Exit status")."""

    OK = 0
    FINDING = 1
    USAGE = 2
    INCOMPLETE = 3
    REFUSED = 4
    UNREACHABLE = 5
    UNVERIFIED = 6
    INTERNAL = 70
    BUSY = 75
    INTERRUPTED = 130


class EoctlError(Exception):
    """Something the operator must know.

    what: one sentence without a final full stop; where: the file, broker, topic or option
    concerned; remedy: what to do next. None where there is nothing to say.
    """

    exit_status = Exit.INTERNAL

    def __init__(self, what: str, *, where: str | None = None, remedy: str | None = None) -> None:
        self.what = what
        self.where = where
        self.remedy = remedy
        super().__init__(self.sentence)

    @property
    def sentence(self) -> str:
        """Return `where: what; remedy` on one line, with `where` once if `what` begins with it.

        No URL in the sentence shows its password.
        """
        named = not self.where or self.what.startswith((f"{self.where}:", f"{self.where} "))
        text = self.what if named else f"{self.where}: {self.what}"
        return without_passwords(f"{text}; {self.remedy}" if self.remedy else text)


class UsageError(EoctlError):
    """Wrong words: an option, a selector, a configuration file."""

    exit_status = Exit.USAGE


class IncompleteError(EoctlError):
    """The question cannot be answered from what could be seen, or in the time given."""

    exit_status = Exit.INCOMPLETE


class RefusedError(EoctlError):
    """Doing it would not be safe."""

    exit_status = Exit.REFUSED


NO_SUCH_TOPIC = "no such topic, or no permission to see it"


def topic_problem(error: str) -> str:
    """Return in words why a topic could not be described. error: the name of Kafka's error code."""
    if error == "UNKNOWN_TOPIC_OR_PARTITION":
        return NO_SUCH_TOPIC
    if error == "INVALID_TOPIC_EXCEPTION":
        return "Kafka does not allow a topic of this name"
    if error == "TOPIC_AUTHORIZATION_FAILED":
        return "DESCRIBE on the topic is not granted"
    return "the topic could not be described"


def no_topic(
    name: str,
    partitions: int,
    servers: Sequence[tuple[str, int]],
    replicas: int | None = None,
    settings: Mapping[str, str | None] | None = None,
) -> RefusedError:
    """Return the refusal to write to a missing topic, with the command that creates it.

    servers: the cluster's bootstrap servers, (host, port) each. replicas, settings: for the topic;
    None = the cluster's defaults.
    """
    more = "" if replicas is None else f" --replication-factor {replicas}"
    for key, value in sorted((settings or {}).items()):
        if value is not None:
            more += f" --config {key}={f'[{value}]' if ',' in value else value}"
    return RefusedError(
        "the topic does not exist",
        where=name,
        remedy=f"create it: `kafka-topics.sh --bootstrap-server {addresses(servers)} --create "
        f"--topic {name} --partitions {partitions}{more}`, "
        f"in a lab `eoctl lab topic {name} --partitions {partitions}`",
    )


class UnreachableError(EoctlError):
    """No broker could be reached, or it did not accept the credentials."""

    exit_status = Exit.UNREACHABLE


class UnverifiedError(EoctlError):
    """It was done, but the result could not be seen."""

    exit_status = Exit.UNVERIFIED

    @classmethod
    def of(cls, error: EoctlError) -> "UnverifiedError":
        """Return a refusal that came after a change: a RefusedError says that nothing changed."""
        return cls(error.what, where=error.where, remedy=error.remedy)


class BusyError(EoctlError):
    """Another run of the same thing is active."""

    exit_status = Exit.BUSY
