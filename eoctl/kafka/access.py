"""How another process reaches the same cluster: what a task carries to where it runs.

It travels pickled inside a task or a Data Source, never as an option, a conf or a command line,
so that no list of those shows what it holds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eoctl.kafka.properties import ClientSettings


@dataclass(frozen=True, slots=True)
class Access:
    """Client properties as given: `env:` and `file:` references are read where they are used.

    hosts, socks5: as in a context. repr shows no property's value.
    """

    properties: Mapping[str, str] = field(repr=False)
    hosts: Mapping[str, str] = field(default_factory=dict)
    socks5: str | None = field(default=None, repr=False)

    def settings(self) -> "ClientSettings":
        """Their meaning here, secrets read. Raises UsageError."""
        from eoctl.kafka.properties import client_settings

        return client_settings(self.properties, hosts=self.hosts, socks5=self.socks5)
