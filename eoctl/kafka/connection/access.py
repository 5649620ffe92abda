"""The values that a task carries to where it runs, to reach the same cluster from there.

They travel pickled inside a task or a Data Source, never as an option, a conf or a command line, so
no list of those shows them.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from eoctl.kafka.connection.credentials import Confidential

if TYPE_CHECKING:
    from eoctl.kafka.connection.cluster import Cluster
    from eoctl.kafka.connection.properties import ClientSettings

T = TypeVar("T")


class Access(Confidential):
    """Client properties as given: `env:` and `file:` references are read where they are used.

    hosts, socks5: as in a context. beside: of another cluster that the task needs too.
    """

    properties: Mapping[str, str]
    hosts: Mapping[str, str] = {}
    socks5: str | None = None
    beside: "Access | None" = None

    @classmethod
    def read(cls, words: Mapping[str, Any]) -> "Access":
        """Return what `as_dict` wrote. Raises KeyError, TypeError for anything else."""
        beside = words.get("beside")
        return cls(
            words["properties"],
            words.get("hosts") or {},
            words.get("socks5"),
            None if beside is None else cls.read(beside),
        )

    def settings(self) -> "ClientSettings":
        """Return the client settings on this machine, secrets read. Raises UsageError."""
        from eoctl.kafka.connection.properties import client_settings

        return client_settings(self.properties, hosts=self.hosts, socks5=self.socks5)

    def ask(
        self,
        use: "Callable[[Cluster], Coroutine[Any, Any, T]]",
        seconds: float | None = None,
        *,
        read_only: bool = False,
    ) -> T:
        """Call `use`, an asynchronous function, with an open cluster; for threads without a loop.

        seconds: for everything. Raises what opening a cluster and `use` raise.
        """
        from eoctl.kafka.connection.cluster import Cluster
        from eoctl.kafka.connection.failures import Deadline

        async def run() -> T:
            async with Cluster(self.settings(), Deadline(seconds), read_only=read_only) as cluster:
                return await use(cluster)

        return asyncio.run(run())
