"""`context list|use|show|test`: named clusters."""

import json
from typing import Annotated

import typer

from eoctl.cli.emit import emit
from eoctl.cli.options import Connection, Format, Output
from eoctl.cli.runner import show_live
from eoctl.host.clock import now_ms
from eoctl.operations.inspect import permissions
from eoctl.render.columns.context import CONTEXTS, SETTINGS, TESTS
from eoctl.settings import context as config
from eoctl.stores.locks.lock import lock_words
from recovery.errors import UsageError
from recovery.rows.answers import Answer
from recovery.rows.row import ContextRow, ContextSettingRow


def _contexts(connection: Connection) -> list[ContextRow]:
    known = config.load_config()
    current = connection.name_in_force()
    return [
        ContextRow(
            name=name,
            current=name == current,
            bootstrap_servers=entry.bootstrap_servers,
            read_only=entry.read_only,
            protected=entry.protected,
            source="config file" if name in known.contexts else "lab",
        )
        for name, entry in config.contexts(known).items()
    ]


def list_(connection: Connection, output: Format) -> int:
    """The contexts known here: the config file's, and running labs."""
    emit(Answer("context-list", None, now_ms(), _contexts(connection)), CONTEXTS, output)
    return 0


def use(name: Annotated[str, typer.Argument(metavar="NAME")]) -> int:
    """Make a context the default of this user, until the next `use`."""
    known = config.contexts(config.load_config())
    if name not in known:
        raise UsageError(
            f"no context {name!r}", remedy=f"contexts known: {', '.join(known) or 'none'}"
        )
    path = config.chosen_context_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"context": name}), encoding="utf-8")
    part.replace(path)
    return 0


def show(connection: Connection, output: Format) -> int:
    """The settings in force, as flags, environment and config file make them; no secrets."""
    context = connection.one()
    rows = [
        ContextSettingRow(key=key, value="(hidden)" if config.SECRET_KEY.search(key) else value)
        for key, value in sorted(context.properties.items())
    ]
    rows += [
        ContextSettingRow(key=key, value=str(value))
        for key, value in (
            ("read_only", context.read_only),
            ("protected", context.protected),
            ("socks5", None if context.socks5 is None else _without_login(context.socks5)),
            ("lock", lock_words(context.lock_zookeeper)),
        )
        if value
    ]
    rows += [
        ContextSettingRow(key=f"hosts.{name}", value=address)
        for name, address in sorted(context.hosts.items())
    ]
    answer = Answer("context-show", None, now_ms(), rows, extra={"context": context.title})
    emit(answer, SETTINGS, output)
    return 0


def _without_login(address: str) -> str:
    """A proxy's address as it may be shown: [USER:PASSWORD@]HOST:PORT without the login."""
    login, at, server = address.rpartition("@")
    return f"(login hidden)@{server}" if at and login else server


def test(connection: Connection, output: Output) -> int:
    """Which rights these credentials have, and which commands those allow. Changes nothing."""
    context = connection.one()
    return show_live(connection, output, TESTS, lambda c: permissions.test(c, context))
