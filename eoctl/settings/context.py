"""Contexts: which cluster, how to reach it, what may be done to it; precedence and folders.

Precedence: flag, environment, config file, default. The config file is TOML:

    context = "prod-eu"                    # used when nothing else is said

    [contexts.prod-eu]
    bootstrap_servers = "b1:9093,b2:9093"
    command_config = "/etc/kafka/client.properties"
    read_only = true
    properties = { "sasl.password" = "env:KAFKA_PASSWORD" }

A running lab is a context too: `lab` (`lab-NAME` for a named one).
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from eoctl.kafka.connection.access import Access
from eoctl.kafka.connection.credentials import Confidential
from eoctl.kafka.connection.property_names import ELSEWHERE, SECRET_KEY
from eoctl.settings.folders import cache_dir as cache_dir
from eoctl.settings.folders import config_path as config_path
from eoctl.settings.folders import state_dir as state_dir
from recovery.errors import UsageError
from recovery.inspect.two_phase import PRECOMMITTED_NAMES
from recovery.values import replace

if TYPE_CHECKING:
    from eoctl.kafka.connection.cluster import Cluster
    from eoctl.kafka.connection.properties import ClientSettings


class ContextFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One [contexts.NAME] table as written in the config file."""

    bootstrap_servers: str | None = None
    command_config: str | None = None
    properties: dict[str, str] = {}
    read_only: bool = False
    protected: bool = False
    require_rehearsal: bool = False
    hosts: dict[str, str] = {}
    socks5: str | None = None
    token_command: str | None = None
    two_phase_patterns: tuple[str, ...] = PRECOMMITTED_NAMES
    accept_missing: tuple[str, ...] = ()
    accept_findings: tuple[str, ...] = ()
    lock_zookeeper: str | None = None
    show_records: bool = True

    def __repr__(self) -> str:
        """Leave out what may hold a password."""
        return f"ContextFile({self.bootstrap_servers!r}, {self.command_config!r}, ...)"


class CheckThresholds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[check]: when `eoctl check` speaks up. Counts are offsets or transactions; ages durations.

    `false` turns a rule off (TOML knows no null).
    """

    held_records: int | None = 100_000
    held_age: str | None = "15m"
    verdicts: dict[str, int] = msgspec.field(
        default_factory=lambda: {
            "orphan": 1,
            "marker-lost": 1,
            "coordinator-fenced": 1,
            "prepare-stuck": 1,
            "overdue": 1,
            "long": 1,
        }
    )
    groups_pending: int | None = None
    coordinators_unavailable: int | None = 1
    producer_id_expiry: str | None = "1h"
    deadline: str | None = "5m"
    two_phase_age: str | None = "1d"
    id_expiry: str | None = None
    epochs_left: int | None = None
    group_expiry: str | None = None
    producer_states: int | None = None
    transactional_ids: int | None = None
    internal_topic_bytes: str | None = None
    contested_ids: int | None = 1
    mirror_map_age: str | None = None
    mirror_maps: list[str] = []


class ConfigFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The complete config file."""

    context: str | None = None
    contexts: dict[str, ContextFile] = {}
    check: CheckThresholds = CheckThresholds()


class Connect(Confidential):
    """The command line's (or the environment's) choice of cluster. None = not given."""

    context: str | None = None
    bootstrap_server: str | None = None
    command_config: str | None = None
    properties: tuple[str, ...] = ()


class Context(Confidential):
    """One cluster as it will be used.

    properties: client properties, values not yet resolved (`env:`, `file:`). argv: the
    connection options that name the same cluster again, for commands that eoctl prints.
    """

    name: str | None
    properties: Mapping[str, str]
    argv: tuple[str, ...]
    read_only: bool = False
    protected: bool = False
    require_rehearsal: bool = False  # of a plan that can be rehearsed, before it is carried out
    hosts: Mapping[str, str] = {}
    socks5: str | None = None
    two_phase_patterns: tuple[str, ...] = PRECOMMITTED_NAMES
    accept_missing: tuple[str, ...] = ()
    accept_findings: tuple[str, ...] = ()
    lock_zookeeper: str | None = None
    show_records: bool = True  # keys, values and headers may be shown
    warnings: tuple[str, ...] = ()  # what is less safe than one may think, in sentences

    @property
    def title(self) -> str:
        """Return the name a person knows the cluster by."""
        return self.name or self.properties.get("bootstrap.servers", "?")

    @property
    def access(self) -> Access:
        """Return the client properties alone: what another process needs to reach the cluster."""
        return Access(dict(self.properties), dict(self.hosts), self.socks5)

    def settings(self) -> "ClientSettings":
        """Return what the properties mean here, secrets read. Raises UsageError."""
        return self.access.settings()

    def only_looking(self) -> "Context":
        """Return the context whose connections refuse what may change something; no record is
        shown."""
        return replace(self, read_only=True, show_records=False)

    def open(self, seconds: float | None) -> "Cluster":
        """Return the cluster, to be used with `async with`, all within `seconds`."""
        from eoctl.kafka.connection.cluster import Cluster
        from eoctl.kafka.connection.failures import Deadline

        return Cluster(self.settings(), Deadline(seconds), read_only=self.read_only)


def _warnings(
    connect: Connect, config: ConfigFile, name: str | None, properties: Mapping[str, str]
) -> tuple[str, ...]:
    """List what is less safe than it seems: a guard that an option drops, a check that is off."""
    warnings = []
    dropped = os.environ.get("EOCTL_CONTEXT") or _chosen_context() or config.context
    entry = contexts(config).get(dropped) if name is None and dropped else None
    if entry is not None and (guards := _guards(entry)):
        guard = guards[0]
        named = (
            (connect.bootstrap_server, "--bootstrap-server"),
            (connect.command_config, "--command-config"),
        )
        option = next((word for given, word in named if given), "the environment")
        warnings.append(
            f"context {dropped} is {guard}, but {option} names a cluster without it: that guard "
            "does not hold here (give --context too to keep it)"
        )
    path = config_path()
    if name is None and os.environ.get("EOCTL_CONFIG") and path and not path.exists():
        warnings.append(
            f"{path}, which EOCTL_CONFIG names, is not there: no guard of a context holds, and "
            "`check` has its default limits"
        )
    if properties.get("enable.ssl.certificate.verification", "").strip().lower() == "false":
        warnings.append(
            "the brokers' certificates are not checked (enable.ssl.certificate.verification="
            "false): anyone on the way to the brokers can read and change all that is sent"
        )
    return tuple(warnings)


def _guards(entry: ContextFile) -> list[str]:
    """Return in words what a context guards against, the most important first."""
    words = (
        ("read-only", entry.read_only),
        ("protected", entry.protected),
        ("set to show no records", not entry.show_records),
    )
    return [word for word, on in words if on]


def load_config(*, new: bool = False) -> ConfigFile:
    """Return the config file's content; defaults if there is none. Raises UsageError with the line.

    new: a file that EOCTL_CONFIG names may be missing too.
    """
    path = config_path()
    if path is None:
        return ConfigFile()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if os.environ.get("EOCTL_CONFIG") and not new:
            remedy = "EOCTL_CONFIG names it; `eoctl context add NAME` begins it"
            raise UsageError("no such file", where=str(path), remedy=remedy) from None
        return ConfigFile()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot be read: {error}", where=str(path)) from None
    import tomllib

    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"not valid TOML: {error}", where=str(path)) from None
    try:
        if isinstance(check := content.get("check"), dict):
            on = {key: None if value is False else value for key, value in check.items()}
            content["check"] = _read(on, CheckThresholds, "check")
        if isinstance(tables := content.get("contexts"), dict):
            content["contexts"] = {
                name: _read(table, ContextFile, "contexts", name) for name, table in tables.items()
            }
        return _read(content, ConfigFile)
    except ValueError as error:
        raise UsageError(str(error), where=str(path)) from None


_T = TypeVar("_T", ContextFile, CheckThresholds, ConfigFile)


def _read(table: object, kind: type[_T], *where: str) -> _T:
    """Read a table of the file. Raises ValueError, which names the key and no value."""
    at = where
    try:
        for key, value in table.items() if isinstance(table, dict) else ():
            at = (*where, key)
            if key not in kind.__struct_fields__:
                raise ValueError(f"{'.'.join(at)}: there is no such setting")
            for name, one in value.items() if isinstance(value, dict) else ():
                at = (*where, key, name)
                msgspec.convert({key: {name: one}}, kind, strict=False)
            msgspec.convert({key: value}, kind, strict=False)
            at = where
        return msgspec.convert(table, kind, strict=False)
    except msgspec.ValidationError as error:
        what, _, _ = str(error).partition(" - at ")
        raise ValueError(f"{'.'.join(at)}: {what}") from None


def config_for(connect: Connect) -> ConfigFile:
    """Return the config file's content; a cluster that is named by its address needs no file.

    Raises UsageError, also if EOCTL_CONFIG names a missing file and a context is requested.
    """
    named = connect.context or os.environ.get("EOCTL_CONTEXT")
    server = connect.bootstrap_server or connect.command_config
    server = server or os.environ.get("EOCTL_BOOTSTRAP_SERVER")
    server = server or os.environ.get("EOCTL_COMMAND_CONFIG")
    return load_config(
        new=bool(connect.context is None and server and (connect.bootstrap_server or not named))
    )


def contexts(config: ConfigFile) -> dict[str, ContextFile]:
    """List named clusters: the config file's, and running labs with names that it does not use."""
    by_name: dict[str, ContextFile] = {}
    try:
        files = sorted((state_dir() / "contexts").glob("*.json"))
    except (UsageError, OSError):
        files = []
    for path in files:
        try:
            by_name[path.stem] = msgspec.json.decode(path.read_bytes(), type=ContextFile)
        except (OSError, ValueError):
            continue  # a lab that just ends; the others are as good as before
    return by_name | config.contexts


def chosen_context_path() -> Path:
    """Return the file in which `context use` keeps its choice."""
    return state_dir() / "context"


def _chosen_context() -> str | None:
    try:
        name = json.loads(chosen_context_path().read_bytes())["context"]
    except (UsageError, OSError, ValueError, KeyError, TypeError):
        return None
    return name if isinstance(name, str) and name else None


def context_name(connect: Connect, config: ConfigFile) -> str | None:
    """Return the context in force: flag, environment, `context use`, config file, a running lab."""
    if connect.context:
        return connect.context
    if connect.bootstrap_server or connect.command_config:
        return None
    name = os.environ.get("EOCTL_CONTEXT")
    if name or os.environ.get("EOCTL_BOOTSTRAP_SERVER") or os.environ.get("EOCTL_COMMAND_CONFIG"):
        return name or None
    name = _chosen_context() or config.context
    if name is None and "lab" in contexts(config):
        return "lab"
    return name


def resolve(connect: Connect, config: ConfigFile | None = None) -> Context:
    """Return the cluster that flags, environment and config file name together.

    config: that file's content, where it is read already.

    Raises UsageError: no cluster named, an unknown context, an unreadable file, a bad -X.
    """
    config = config_for(connect) if config is None else config
    name = context_name(connect, config)
    known = contexts(config)
    entry = ContextFile()
    if name is not None:
        if name not in known:
            names = ", ".join(known) or "none"
            raise UsageError(
                f"no context {name!r}", remedy=f"contexts known: {names} (eoctl context list)"
            )
        entry = known[name]
    bootstrap, command_config = connect.bootstrap_server, connect.command_config
    if not connect.context:
        bootstrap = bootstrap or os.environ.get("EOCTL_BOOTSTRAP_SERVER")
        command_config = command_config or os.environ.get("EOCTL_COMMAND_CONFIG")
    properties: dict[str, str] = {}
    if entry.command_config:
        path, home = Path(entry.command_config).expanduser(), config_path()
        if home is not None and name in config.contexts:
            path = home.parent / path  # cron starts eoctl anywhere
        properties |= _read_command_config(path)
    properties |= entry.properties
    if entry.token_command:
        properties["token_command"] = entry.token_command
    if entry.bootstrap_servers:
        properties["bootstrap.servers"] = entry.bootstrap_servers
    if command_config:
        properties |= _read_command_config(Path(command_config))
    if bootstrap:
        properties["bootstrap.servers"] = bootstrap
    properties |= extra_properties(connect.properties)
    if not properties.get("bootstrap.servers", "").strip():
        raise UsageError(
            "no cluster is named",
            remedy="give --bootstrap-server HOST:PORT or --context NAME, "
            "or start a Kafka here with `eoctl lab up`",
        )
    if "@" in properties["bootstrap.servers"]:
        raise UsageError(  # the text before it is not shown: it is a password
            "a server's name holds an @: a login does not belong there",
            where="bootstrap.servers",
            remedy="give HOST:PORT, and the login by --command-config, a context, or -X with "
            "env:NAME or file:PATH",
        )
    argv: list[str] = []
    for option, value in (
        ("--context", name),
        ("--bootstrap-server", bootstrap),
        ("--command-config", command_config),
    ):
        if value:
            argv += [option, value]
    for pair in connect.properties:
        key, _, value = pair.partition("=")
        # where a secret is kept is none
        if not SECRET_KEY.search(key) or ELSEWHERE.match(value.strip()):
            argv += ["-X", pair]
    return Context(
        name=name,
        properties=properties,
        argv=tuple(argv),
        read_only=entry.read_only,
        protected=entry.protected,
        hosts=entry.hosts,
        socks5=entry.socks5,
        two_phase_patterns=entry.two_phase_patterns,
        accept_missing=entry.accept_missing,
        accept_findings=entry.accept_findings,
        require_rehearsal=entry.require_rehearsal,
        lock_zookeeper=entry.lock_zookeeper,
        show_records=entry.show_records,
        warnings=_warnings(connect, config, name, properties),
    )


def _read_command_config(path: Path) -> dict[str, str]:
    from eoctl.kafka.connection.properties import read_properties

    try:
        text = path.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"cannot be read: {reason}", where=str(path), remedy="see --command-config"
        ) from None
    return read_properties(text, str(path))


def extra_properties(pairs: tuple[str, ...]) -> dict[str, str]:
    """Client properties of `-X key=value` pairs. Raises UsageError."""
    extra: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            # that text may be a secret after a wrong sign
            raise UsageError("a pair without `=`", where="-X", remedy="write -X key=value")
        extra[key.strip()] = value.strip()
    return extra
