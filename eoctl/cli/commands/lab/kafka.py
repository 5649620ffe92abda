"""`lab up|down|status|break|topic|job|demo`: a real Kafka on this machine, to try and to break."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from eoctl.cli.emit import emit
from eoctl.cli.options import Format, JsonFormat, argument, option
from eoctl.cli.progress import Progress, note
from eoctl.host.clock import now_ms
from eoctl.lab import admin, breaks, cluster
from eoctl.lab.breaks.stage import COMMON
from eoctl.lab.breaks.truth import GroundTruth
from eoctl.lab.lab_tables import BROKERS, DOWN, JOB, LabBrokerRow, LabDownRow, LabJobRow
from eoctl.lab.record import LabSpec
from eoctl.render.columns.table import EPOCH, PARTITION, PID, TRANSACTIONAL_ID, Table, plain
from eoctl.render.tables import Column
from recovery.answers import Answer
from recovery.errors import UsageError
from recovery.plurals import counted
from recovery.quoting import quoted
from recovery.times import duration

if TYPE_CHECKING:
    from eoctl.lab.cluster import Lab

Name = Annotated[str, option("--name NAME", "of the lab")]


def _rows(lab: "Lab") -> list[LabBrokerRow]:
    record, status = lab.record, lab.status()
    return [
        LabBrokerRow.of(
            broker,
            lab=lab.name,
            context=lab.context_name,
            kafka_version=record.spec.kafka_version,
            secure=record.spec.secure,
            cluster_id=record.cluster_id,
            folder=str(lab.folder),
            log=str(broker.log),
        )
        for broker in status.brokers
    ]


def up(
    output: Format,
    name: Name = "default",
    brokers: Annotated[int, option("--brokers 1|2|3")] = 1,
    port: Annotated[int | None, option("--port N", "of the first broker [any free one]")] = None,
    secure: Annotated[
        bool, option("--secure", "TLS, SASL, ACLs: a listener per way of signing in")
    ] = False,
    transaction_version: Annotated[
        int | None, option("--transaction-version 0|1|2", "feature level (KIP-890)")
    ] = None,
    settings: Annotated[
        list[str] | None, option("--set KEY=VALUE", "one more broker setting")
    ] = None,
    kafka_version: Annotated[
        str | None, option("--kafka-version V", "one with a lock file")
    ] = None,
    ivy_settings: Annotated[
        Path | None,
        option(
            "--ivy-settings FILE",
            "a company's ivysettings.xml, to fetch jars from its own repository",
        ),
    ] = None,
) -> int:
    """Start a Kafka on this machine, for `--context lab` (or lab-NAME) of every command.

    A lab that is up already is left as it is; one with stopped brokers gets them started.
    """
    spec = LabSpec(
        name=name,
        brokers=brokers,
        port=port,
        secure=secure,
        transaction_version=transaction_version,
        settings=dict(map(setting, settings or ())),
        **({} if kafka_version is None else {"kafka_version": kafka_version}),
    )
    with Progress() as progress:
        lab = cluster.up(spec, ivy_settings=ivy_settings, progress=progress)
    rows = _rows(lab)
    emit(Answer("lab-up", lab.record.cluster_id, now_ms(), rows), BROKERS, output)
    context = "" if lab.name == "default" else f" --context {lab.context_name}"
    note(f"next: `eoctl status{context}`, `eoctl lab break --help`; {_end_by(lab.name)}")
    return 0


def _end_by(name: str) -> str:
    return "end it with `eoctl lab down" + ("`" if name == "default" else f" --name {name}`")


def setting(text: str, where: str = "--set") -> tuple[str, str]:
    """Return key and value of KEY=VALUE. Raises UsageError."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"{quoted(text)} has no value", where=where, remedy="write KEY=VALUE")
    return key.strip(), value.strip()


def down(
    output: Format,
    name: Name = "default",
    keep_data: Annotated[
        bool, option("--keep-data", "a later `lab up` starts it again as it was")
    ] = False,
) -> int:
    """End exactly what `lab up` started, and delete its data unless they are to be kept."""
    lab = cluster.load(name)
    record = lab.record
    lab.down(keep_data=keep_data)
    row = LabDownRow(
        lab=name,
        context=lab.context_name,
        brokers=len(record.nodes),
        data="kept" if keep_data else "deleted",
        folder=str(lab.folder),
    )
    emit(Answer("lab-down", record.cluster_id, now_ms(), [row]), DOWN, output)
    return 0


def status(output: Format, name: Annotated[str | None, option("--name")] = None) -> int:
    """The labs on this machine and what of them runs."""
    names = cluster.lab_names() if name is None else [name]
    rows = [row for each in names for row in _rows(cluster.load(each))]
    emit(Answer("lab-status", None, now_ms(), rows), BROKERS, output)
    if not rows:
        note("start one with `eoctl lab up`")
    return 0


TRUTHS = Table(
    GroundTruth,
    (
        Column("kind", "KIND", "text"),
        PARTITION,
        PID,
        EPOCH,
        *plain("number", start_offset="FROM", last_stable_offset="LSO", high_watermark="HW"),
        TRANSACTIONAL_ID,
        Column("owner_pid", "OWNER", "number", wide_only=True),
    ),
    names=("topic", "partition"),
    summary=lambda answer: f"{counted(len(answer.rows), 'trouble')} made",
)


def break_(
    output: JsonFormat,
    kind: Annotated[str, argument("KIND", "one of those above")],
    name: Name = "default",
    topic: Annotated[str | None, option("--topic TOPIC", "[a new one, lab-KIND-N]")] = None,
    partition: Annotated[int | None, option("--partition P", "the first one used [0]")] = None,
    count: Annotated[int | None, option("--count N", "of partitions to break [1]")] = None,
    transactional_id: Annotated[
        str | None, option("--transactional-id ID", "with --count: ID.0, ID.1, ...")
    ] = None,
    records: Annotated[int | None, option("--records N", "of the transaction [3]")] = None,
    transaction_timeout: Annotated[str | None, option("--transaction-timeout D")] = None,
    no_hold: Annotated[bool, option("--no-hold", "no process holds the transaction open")] = False,
    variant: Annotated[str | None, option("--kind SORT", "of those the kind has")] = None,
    later: Annotated[
        str | None, option("--later WHAT", "the id did after its marker was lost")
    ] = None,
    group: Annotated[str | None, option("--group GROUP")] = None,
    age: Annotated[
        str | None, option("--age D", "how old an orphan's records say they are")
    ] = None,
    outcome: Annotated[
        str | None, option("--outcome commit|abort", "decided, then its marker lost")
    ] = None,
    ahead: Annotated[int | None, option("--ahead N", "epochs of a foreign marker [1000]")] = None,
) -> int:
    given: dict[str, Any] = {
        "topic": topic,
        "partition": partition,
        "count": count,
        "transactional_id": transactional_id,
        "records": records,
        "timeout_ms": None
        if transaction_timeout is None
        else round(duration(transaction_timeout, where="--transaction-timeout") * 1000),
        "hold": False if no_hold else None,
        "variant": variant,
        "later": later,
        "group": group,
        "age_seconds": None if age is None else duration(age, where="--age"),
        "outcome": outcome,
        "ahead": ahead,
    }
    if kind not in breaks.KINDS:
        raise UsageError(
            f"{quoted(kind)} is not a kind of break", remedy=f"one of {', '.join(breaks.KINDS)}"
        )
    options = {key: value for key, value in given.items() if value is not None}
    for key in options:
        if key not in COMMON | breaks.KINDS[kind].takes:
            raise UsageError(f"`{kind}` does not take {OPTIONS[key]}", remedy="see --help")
    lab = cluster.load(name)
    truths = breaks.break_(lab, kind, **options)
    emit(Answer("lab-break", lab.record.cluster_id, now_ms(), truths), TRUTHS, output)
    return 0


def topic(
    topic: Annotated[str, argument("TOPIC")],
    partitions: Annotated[int, option("--partitions N", "how many", min=1, max=10_000)] = 1,
    configs: Annotated[
        list[str] | None, option("--config KEY=VALUE", "one setting of the topic")
    ] = None,
    name: Name = "default",
) -> int:
    """Create an empty topic in a lab, like kafka-topics.sh --create.

    Each partition has a replica on every broker of the lab. An existing topic is left as it is and
    refused.
    """
    settings = dict(setting(text, "--config") for text in configs or ())
    admin.add_topic(cluster.load(name), topic, partitions, settings)
    note(f"{topic}: created with {counted(partitions, 'partition')}")
    return 0


def job(
    output: Format,
    name: Name = "default",
    die_after: Annotated[
        int | None, option("--die-after N", "SIGKILL after so many outputs")
    ] = None,
    env_file: Annotated[Path | None, option("--env-file FILE", "of `restart plan --env`")] = None,
    look: Annotated[bool, option("--look", "only look at what is there")] = False,
    lose_store: Annotated[
        bool, option("--lose-store", "delete its state store; what it held: totals.jsonl")
    ] = False,
) -> int:
    """Run a small job to practise with: it prices sales, keeps totals, and can die midway.

    It ends with 1 when its outputs are not those of a run that was never interrupted.
    """
    from eoctl.lab.job import CHANGELOG, INPUT, OUTPUT, LabJob

    lab = cluster.load(name)
    environment = dict(os.environ)
    if env_file is not None:
        try:
            lines = env_file.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise UsageError(f"cannot be read: {error.strerror}", where=str(env_file)) from None
        environment |= dict(setting(line) for line in lines if line.strip())
    one = LabJob(lab, environment)
    if die_after is not None:
        note(f"it dies after {counted(die_after, 'output')}; its application file: {one.app_file}")
    if lose_store:
        note(f"deleted {one.store}; what it held is in {one.lose_store()}")
    done = one.look() if look or lose_store else one.run(die_after)
    row = LabJobRow.of(
        done,
        lab=name,
        input=INPUT,
        output=OUTPUT,
        app_file=str(done.app_file),
        changelog=CHANGELOG,
        store=str(done.store),
    )
    emit(Answer("lab-job", lab.record.cluster_id, now_ms(), [row]), JOB, output)
    return 0 if done.equal else 1


# of eoctl.lab.breaks, as they are spelled here
OPTIONS = {
    "topic": "--topic",
    "partition": "--partition",
    "count": "--count",
    "transactional_id": "--transactional-id",
    "records": "--records",
    "timeout_ms": "--transaction-timeout",
    "hold": "--no-hold",
    "variant": "--kind",
    "later": "--later",
    "group": "--group",
    "age_seconds": "--age",
    "outcome": "--outcome",
    "ahead": "--ahead",
}


def _kinds() -> str:
    """The kinds of break for `--help`: one line each, then what it needs and takes."""
    lines = []
    for kind in breaks.KINDS.values():
        lines.append(f"{kind.name:<21}  {kind.summary}")
        needs = [f"--brokers {kind.brokers}"] if kind.brokers > 1 else []
        needs += [f"--set {key}={value}" for key, value in kind.settings.items()]
        lines += [f"{'':<23}  needs {need}" for need in needs]
        takes = sorted(OPTIONS[key] for key in kind.takes)
        if takes:
            lines.append(f"{'':<23}  takes {', '.join(takes)}")
    return "\n".join(lines)


# `\b`: the help's lines stay as they are
break_.__doc__ = f"""Make real trouble in a lab, and print the ground truth about it.

\b
{_kinds()}

A kind that needs something of `lab up` refuses without it. `lab down` ends what it started.
"""


def demo() -> int:
    """Start a Kafka, break it, and look at it: the commands and what they print."""
    from eoctl.cli.commands.lab.demo import show

    return show()
