"""`context list|use|show|add|test`: named clusters."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from eoctl.cli.dialog import adding as dialog
from eoctl.cli.emit import emit
from eoctl.cli.options import Connection, Format, Output, argument, option
from eoctl.cli.progress import note
from eoctl.cli.runner import show_live
from eoctl.host.clock import now_ms
from eoctl.kafka.connection.property_names import SECRET_KEY, in_clear
from eoctl.operations.inspect import permissions
from eoctl.operations.session.session import with_cluster
from eoctl.render.columns.context import CONTEXTS, SETTINGS, TESTS
from eoctl.settings import adding
from eoctl.settings import context as config
from eoctl.settings.context_rows import ContextRow, ContextSettingRow
from eoctl.stores.locks.lock import lock_words
from recovery.answers import Answer
from recovery.errors import EoctlError, UsageError
from recovery.values import replace


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
            show_records=entry.show_records,
        )
        for name, entry in config.contexts(known).items()
    ]


def list_(connection: Connection, output: Format) -> int:
    """List the contexts known here: the config file's, and running labs."""
    emit(Answer("context-list", None, now_ms(), _contexts(connection)), CONTEXTS, output)
    return 0


def use(name: Annotated[str, argument("NAME")]) -> int:
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
    """Show the settings in force, as flags, environment and config file make them; no secrets."""
    context = connection.one()
    rows = [
        ContextSettingRow(key=key, value="(hidden)" if SECRET_KEY.search(key) else value)
        for key, value in sorted(context.properties.items())
    ]
    rows += [
        ContextSettingRow(key=key, value=str(value))
        for key, value in (
            ("read_only", context.read_only),
            ("protected", context.protected),
            ("require_rehearsal", context.require_rehearsal),
            ("show_records", None if context.show_records else "False"),
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
    """Return a proxy's address as it may be shown: [USER:PASSWORD@]HOST:PORT without the login."""
    login, at, server = address.rpartition("@")
    return f"(login hidden)@{server}" if at and login else server


def test(connection: Connection, output: Output) -> int:
    """Show which rights these credentials have, and which commands they allow. Changes nothing."""
    context = connection.one()
    return show_live(
        connection, output, TESTS, lambda c: permissions.test(c, context, "context-test")
    )


def add(
    connection: Connection,
    output: Format,
    name: Annotated[str, argument("NAME")],
    read_only: Annotated[bool, option("--read-only", "nothing may be changed there")] = False,
    protected: Annotated[bool, option("--protected", "marked so in lists")] = False,
    secrets_in_clear: Annotated[
        bool, option("--secrets-in-clear", "a password given by -X goes into the file")
    ] = False,
    no_test: Annotated[bool, option("--no-test", "save without trying")] = False,
) -> int:
    """Add a cluster to the config file: asks on a terminal, tries it, says what it allows.

    Without a terminal, or with --bootstrap-server or --command-config, nothing is asked.
    """
    adding.new_name(name, known := config.load_config(new=True))
    connect, typed = connection.connect, False
    asks = not (connect.bootstrap_server or connect.command_config)
    if asks:
        if not sys.stdin.isatty():
            raise UsageError(
                "no cluster is named, and stdin is not a terminal to ask on",
                remedy="give --bootstrap-server HOST:PORT, and -X key=value or --command-config F",
            )
        properties, typed = dialog.cluster()
        read_only = read_only or dialog.question(dialog.READ_ONLY, "yes", ("yes", "no")) == "yes"
    else:
        properties = config.extra_properties(connect.properties)
        if connect.bootstrap_server:
            properties["bootstrap.servers"] = connect.bootstrap_server
    if (secrets := in_clear(properties)) and not (typed or secrets_in_clear):
        raise UsageError(
            f"{', '.join(secrets)} would be in the config file as plain text",
            remedy="write -X KEY=env:NAME or KEY=file:PATH, or add --secrets-in-clear",
        )
    if not no_test:
        _try(name, connection, output, properties, known, asks=asks)
    if typed:
        properties["sasl.password"] = adding.keep_secret(name, properties["sasl.password"])
    file = connect.command_config
    flags = {
        "bootstrap_servers": properties.pop("bootstrap.servers", None),
        "command_config": None if file is None else str(Path(file).expanduser().absolute()),
        "read_only": read_only,
        "protected": protected,
    }
    path = adding.append(adding.table(name, properties, flags))
    note(f"eoctl: context {name} is in {path}; `eoctl context use {name}` makes it the default")
    return 0


def _try(
    name: str,
    connection: Connection,
    output: Format,
    properties: Mapping[str, str],
    known: config.ConfigFile,
    *,
    asks: bool,
) -> None:
    """Show what the cluster allows. Raises EoctlError if it fails and is not to be saved so."""
    pairs = tuple(f"{key}={value}" for key, value in properties.items())
    servers = properties.get("bootstrap.servers")
    connect = config.Connect(None, servers, connection.command_config, pairs)
    context = replace(config.resolve(connect, known), name=name)
    try:
        answer = with_cluster(
            context, connection.seconds(), lambda c: permissions.test(c, context, "context-add")
        )
    except EoctlError as error:
        if asks:
            note(f"eoctl: {error.sentence}")
            if dialog.question("Save it anyway: yes, no", "no", ("yes", "no")) == "yes":
                return
        note("eoctl: nothing was saved; --no-test saves a context without trying it")
        raise
    emit(answer, TESTS, output)
