"""Access ZooKeeper's nodes in one session: read many, create with inherited rights, commit."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from eoctl.stores.locks.zookeeper_session import Session
from recovery.errors import RefusedError


@dataclass(slots=True)
class Tree:
    """Nodes that were read. nodes: path to (data, version); folders: path to the names in it."""

    nodes: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    folders: dict[str, list[str]] = field(default_factory=dict)


def error_words(error: BaseException) -> str:
    return str(error) or type(error).__name__


def commit(client: Any, transaction: Any, may_be_sent: Callable[[], bool]) -> Any:
    """Send a multi-operation; call `may_be_sent` just before its bytes go out, on kazoo's thread.

    kazoo keeps a request of a suspended connection and sends it over the next one, which must not
    happen: checking the state before `commit_async` would be too early.
    """
    from kazoo.exceptions import ConnectionLoss
    from kazoo.protocol.connection import ConnectionDropped
    from kazoo.protocol.serialization import Transaction

    class Guarded(Transaction):  # type: ignore[misc]
        def serialize(self) -> Any:
            if not may_be_sent():
                raise ConnectionDropped("it was interrupted")
            return super().serialize()

    result = client.handler.async_result()
    if not client.connected:
        raise ConnectionLoss
    client._call(Guarded(transaction.operations), result)
    return result


def create(
    session: Session, transaction: Any, path: str, data: bytes, made: dict[str, Any]
) -> None:
    """Create a node and its missing parents, with the ACL of the nearest one that exists.

    made: nodes that this operation already creates, with their rights.
    """
    from kazoo.exceptions import NoNodeError

    missing: list[str] = []
    above = path.rpartition("/")[0] or "/"
    while True:
        if above in made:
            rights = made[above]
            break
        try:
            rights, _ = session.ask(session.client.get_acls_async(above))
            break
        except NoNodeError:
            missing.append(above)
            above = above.rpartition("/")[0] or "/"
    if any(r.id.scheme == "digest" and r.id.id.endswith(":x") for r in rights):
        raise RefusedError(
            "new nodes need the rights of the node above, and ZooKeeper hides those from us",
            where=above,
            remedy="use credentials that may administer that node",
        )
    for folder in (*reversed(missing), path):
        transaction.create(folder, data if folder == path else b"", acl=rights)
        made[folder] = rights


def get_all(session: Session, paths: Sequence[str]) -> dict[str, tuple[bytes, int]]:
    """Return data and version of the nodes that exist."""
    from kazoo.exceptions import NoNodeError

    requests = [(path, session.client.get_async(path)) for path in paths]
    nodes = {}
    for path, request in requests:
        try:
            data, stat = session.ask(request)
        except NoNodeError:
            continue
        nodes[path] = (data, stat.version)
    return nodes


def read_consumer(session: Session, path: str) -> Tree:
    """Return the nodes of `/consumers/GROUP/offsets/TOPIC/PARTITION`."""
    from kazoo.exceptions import NoNodeError

    tree = Tree()
    try:
        topics = session.ask(session.client.get_children_async(path))
    except NoNodeError:
        return tree
    tree.folders[path] = topics
    requests = [(f"{path}/{t}", session.client.get_children_async(f"{path}/{t}")) for t in topics]
    for topic, request in requests:
        try:
            tree.folders[topic] = session.ask(request)
        except NoNodeError:
            continue
    tree.nodes = get_all(
        session, [f"{t}/{p}" for t, inside in tree.folders.items() if t != path for p in inside]
    )
    return tree
