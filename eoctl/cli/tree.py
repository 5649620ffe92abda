"""The tree of commands, as a table. A module is loaded when its command runs: `--help` loads none.

Each leaf names a function in a module of `eoctl.cli.commands`; `help` is its first line of help.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, NamedTuple


class Leaf(NamedTuple):
    """One command: `module:function` below eoctl.cli.commands.

    example: a command line for its help page. extra: what of the package must be installed for it,
    beyond the base.
    """

    target: str
    help: str
    example: str
    extra: str | None = None


class Branch(NamedTuple):
    """A group of commands."""

    help: str
    commands: Mapping[str, "Leaf | Branch"]


TREE = Branch(
    "What an operator reaches for when exactly-once breaks in Kafka.",
    {
        "status": Leaf(
            "diagnose:status", "one screen: what is wrong, the worst first", "eoctl status"
        ),
        "why": Leaf(
            "why:why",
            "the story of one held partition, and its one safe remedy",
            "eoctl why orders:3",
        ),
        "runbook": Leaf(
            "diagnose:runbook",
            "this cluster, now, as a checklist; NAME: a page for the night",
            "eoctl runbook > runbook.md",
        ),
        "lso": Leaf(
            "inspect:lso",
            "log start, LSO, high watermark, records held, what blocks",
            "eoctl lso orders:3 'payments-*'",
        ),
        "txn": Branch(
            "transactions, as all coordinators know them",
            {
                "list": Leaf(
                    "inspect:txn_list",
                    "every coordinator's transactions",
                    "eoctl txn list --state Ongoing --longer-than 10m",
                ),
                "describe": Leaf(
                    "inspect:txn_describe",
                    "transactional ids, with their partitions",
                    "eoctl txn describe order-sender-0",
                ),
                "hanging": Leaf(
                    "diagnose:txn_hanging",
                    "a verdict on every open transaction",
                    "eoctl txn hanging --verdict orphan",
                ),
                "history": Leaf(
                    "diagnose:txn_history",
                    "what __transaction_state recorded",
                    "eoctl txn history order-sender-0",
                ),
                "records": Leaf(
                    "records:txn_records",
                    "the records at stake, and the first that wait",
                    "eoctl txn records orders:3 --pid 7 --start-offset 42",
                ),
                "abort": Leaf(
                    "remedy:abort",
                    "abort an orphan: shows the plan, --execute acts",
                    "eoctl txn abort orders:3 --pid 7 --start-offset 42",
                ),
                "fence": Leaf(
                    "remedy:fence",
                    "abort an id's transaction, shut its owner out; --execute acts",
                    "eoctl txn fence order-sender-0",
                ),
                "resolve": Leaf(
                    "remedy:resolve",
                    "write a marker that was decided and lost; --execute acts",
                    "eoctl txn resolve orders:3 --pid 7 --start-offset 42",
                ),
                "commit": Leaf(
                    "checkpoint:commit",
                    "what became of the transactions of a Flink checkpoint",
                    "eoctl txn commit --checkpoint checkpoints/9f2c/chk-42",
                ),
                "salvage": Leaf(
                    "checkpoint:salvage",
                    "copy the aborted records of a lost transaction; --execute acts",
                    "eoctl txn salvage checkpoints/9f2c/chk-42",
                ),
                "apply": Leaf(
                    "remedy:apply",
                    "carry out a plan of `txn hanging --plan`; --execute acts",
                    "eoctl txn apply plan.json --execute",
                ),
            },
        ),
        "producers": Leaf(
            "inspect:producers",
            "producer ids, epochs and sequences of partitions",
            "eoctl producers orders:3 --resolve",
        ),
        "offsets": Branch(
            "committed offsets, and what lies between offsets",
            {
                "show": Leaf(
                    "offsets:offsets_show",
                    "what groups have committed; pending commits",
                    "eoctl offsets show --group sales-pricer",
                ),
                "history": Leaf(
                    "offsets:offsets_history",
                    "a group's commits, and what moved it",
                    "eoctl offsets history sales-pricer orders:3 --since 2d",
                ),
                "count": Leaf(
                    "offsets:offsets_count",
                    "exact data records in a range",
                    "eoctl offsets count orders:3 earliest lso",
                    extra="data",
                ),
            },
        ),
        "restart": Branch(
            "where an application restarts, exactly once",
            {
                "plan": Leaf(
                    "restart:plan",
                    "offsets to restart at, outputs to drop; changes nothing",
                    "eoctl restart plan app.toml --out plan.json",
                    extra="data",
                ),
                "show": Leaf(
                    "restart:show", "a plan file, as it was made", "eoctl restart show plan.json"
                ),
                "apply": Leaf(
                    "restart:apply",
                    "write the planned positions; --execute acts",
                    "eoctl restart apply plan.json --execute",
                    extra="data",
                ),
                "verify": Leaf(
                    "restart:verify",
                    "after `apply`: did a zombie commit or write since?",
                    "eoctl restart verify plan.json",
                    extra="data",
                ),
                "undo": Leaf(
                    "restart:undo",
                    "put back what `apply` wrote; --execute acts",
                    "eoctl restart undo plan.json --execute",
                ),
                "checkpoint": Leaf(
                    "checkpoint:spark",
                    "what a Spark checkpoint lacks, and a repaired copy",
                    "eoctl restart checkpoint /data/checkpoint --copy /data/repaired",
                ),
            },
        ),
        "state": Branch(
            "a store's state from its changelog",
            {
                "rebuild": Leaf(
                    "state.rebuild:rebuild",
                    "make it again up to a cut, and prove it",
                    "eoctl state rebuild totals --format plain --at lso --output new",
                    extra="data",
                ),
                "deliver": Leaf(
                    "state.deliver:deliver",
                    "write it into a topic, a table or an application",
                    "eoctl state deliver rebuilt --into topic:totals --execute",
                    extra="data",
                ),
                "compare": Leaf(
                    "state.look:compare",
                    "two states, or one and its changelog",
                    "eoctl state compare rebuilt totals.jsonl",
                    extra="data",
                ),
                "show": Leaf(
                    "state.look:show",
                    "a key's entries, decoded",
                    "eoctl state show rebuilt key-1",
                    extra="data",
                ),
            },
        ),
        "audit": Branch(
            "what is doubled, missing or torn in topics",
            {
                "sequences": Leaf(
                    "audit.logs:sequences",
                    "gaps and repeats of producers' sequences",
                    "eoctl audit sequences orders",
                    extra="data",
                ),
                "transactions": Leaf(
                    "audit.logs:transactions",
                    "torn ones, and lost markers",
                    "eoctl audit transactions orders",
                    extra="data",
                ),
                "duplicates": Leaf(
                    "audit.logs:duplicates",
                    "duplicate records",
                    "eoctl audit duplicates orders --by header:id",
                    extra="data",
                ),
                "end-to-end": Leaf(
                    "audit.end_to_end:end_to_end",
                    "inputs without an output, or with several",
                    "eoctl audit end-to-end orders enriched --by header:id",
                    extra="data",
                ),
                "mirror": Leaf(
                    "audit.mirror:mirror",
                    "a topic against its mirror, elsewhere or here",
                    "eoctl audit mirror orders eu.orders",
                    extra="data",
                ),
                "mirror-transactions": Leaf(
                    "audit.mirror_transactions:mirror_transactions",
                    "transactions that a mirror has in part",
                    "eoctl audit mirror-transactions orders --mirror-context dc2",
                    extra="data",
                ),
            },
        ),
        "dedup": Leaf(
            "dedup:dedup",
            "copy a topic without its repeats, exactly once; --execute acts",
            "eoctl dedup orders orders-clean --by header:id --execute",
            extra="data",
        ),
        "merge": Branch(
            "check and replay a merge log: in which order inputs were read",
            {
                "verify": Leaf(
                    "merge:verify",
                    "every entry against its input, the tip too",
                    "eoctl merge verify app.toml",
                    extra="data",
                ),
                "plan": Leaf(
                    "merge:plan",
                    "what a replay reads, and what it drops",
                    "eoctl merge plan app.toml --out plan.json",
                    extra="data",
                ),
                "replay": Leaf(
                    "merge:replay",
                    "emit the merged stream again; --execute acts",
                    "eoctl merge replay plan.json --execute",
                    extra="data",
                ),
            },
        ),
        "journal": Branch(
            "who changed what, when, on which evidence",
            {
                "list": Leaf(
                    "journal:list_",
                    "all changes made from here, the oldest first",
                    "eoctl journal list",
                ),
                "show": Leaf("journal:show", "one change, event by event", "eoctl journal show ID"),
                "resume": Leaf(
                    "journal:resume",
                    "finish a change that was left unfinished; --execute acts",
                    "eoctl journal resume ID --execute",
                ),
                "undo": Leaf(
                    "journal:undo",
                    "put back what a change did; --execute acts",
                    "eoctl journal undo ID --execute",
                ),
            },
        ),
        "jobs": Branch(
            "recovery jobs launched from here, running and past",
            {
                "list": Leaf("jobs:list_", "all jobs, the oldest first", "eoctl jobs list"),
                "show": Leaf(
                    "jobs:show",
                    "one job: state, progress, the end of its log",
                    "eoctl jobs show ID",
                ),
                "cancel": Leaf(
                    "jobs:cancel", "stop a job, and all that belongs to it", "eoctl jobs cancel ID"
                ),
                "export": Leaf(
                    "state.rebuild:export",
                    "a rebuild for a scheduler, to be run by spark-submit",
                    "eoctl jobs export job totals --format plain --at lso --output new",
                    extra="data",
                ),
            },
        ),
        "doctor": Leaf(
            "doctor:doctor",
            "what will hurt exactly-once here: settings, versions, habits",
            "eoctl doctor",
        ),
        "check": Leaf(
            "watch.check:check",
            "rules for cron, Prometheus and Nagios",
            "eoctl check --textfile eoctl.prom",
        ),
        "exporter": Leaf(
            "watch.exporter:exporter",
            "a Prometheus endpoint: what `check` finds, and lags of groups",
            "eoctl exporter --context prod --listen 127.0.0.1:9465",
            extra="exporter",
        ),
        "tui": Leaf(
            "watch.tui:tui",
            "the dashboard: all of this on one screen, all day",
            "eoctl tui --context prod",
        ),
        "mcp": Leaf(
            "mcp:mcp",
            "read-only tools for an agent, over stdin and stdout",
            "eoctl mcp --context prod",
            extra="mcp",
        ),
        "bundle": Branch(
            "an incident in one file, which answers in the cluster's place",
            {
                "create": Leaf(
                    "bundle:create",
                    "write all that the read commands see",
                    "eoctl bundle create incident.eoctl",
                ),
                "open": Leaf(
                    "bundle:open_",
                    "verify the checksum, and say what is in it",
                    "eoctl bundle open incident.eoctl",
                ),
            },
        ),
        "report": Leaf(
            "bundle:report",
            "a bundle or the journal as one HTML page",
            "eoctl report incident.eoctl --output incident.html",
        ),
        "context": Branch(
            "named clusters",
            {
                "list": Leaf("context:list_", "the contexts known here", "eoctl context list"),
                "use": Leaf("context:use", "make a context the default", "eoctl context use prod"),
                "show": Leaf(
                    "context:show",
                    "a context's settings, without secrets",
                    "eoctl context show prod",
                ),
                "add": Leaf(
                    "context:add",
                    "add a cluster to the config file: asks, tries it, says what it allows",
                    "eoctl context add prod --bootstrap-server b1:9092 --read-only",
                ),
                "test": Leaf(
                    "context:test",
                    "what your permissions let you see, and what they hide",
                    "eoctl context test --context prod",
                ),
            },
        ),
        "lab": Branch(
            "a real local Kafka, to try things and to break",
            {
                "up": Leaf(
                    "lab.kafka:up", "start a Kafka on this machine", "eoctl lab up --brokers 3"
                ),
                "down": Leaf("lab.kafka:down", "end exactly what `up` started", "eoctl lab down"),
                "status": Leaf("lab.kafka:status", "the labs on this machine", "eoctl lab status"),
                "break": Leaf(
                    "lab.kafka:break_",
                    "make real trouble, and print the truth about it",
                    "eoctl lab break orphan --topic payments --partition 1",
                ),
                "topic": Leaf(
                    "lab.kafka:topic",
                    "create an empty topic",
                    "eoctl lab topic orders --partitions 4",
                ),
                "job": Leaf(
                    "lab.kafka:job",
                    "a small job to practise restarts with; it can die midway",
                    "eoctl lab job --die-after 1742",
                ),
                "drill": Leaf(
                    "lab.drill:drill",
                    "an incident to practise on, with a grade",
                    "eoctl lab drill overdue",
                ),
                "mirror": Leaf(
                    "lab.mirror:mirror_",
                    "two clusters with a MirrorMaker 2 between them",
                    "eoctl lab mirror --exactly-once",
                ),
                "twin": Leaf(
                    "lab.twin:twin",
                    "an incident's bundle as a local Kafka",
                    "eoctl lab twin incident.eoctl",
                ),
                "rehearse": Leaf(
                    "lab.twin:rehearse",
                    "try a plan on the twin of its incident",
                    "eoctl lab rehearse plan.json incident.eoctl",
                ),
                "demo": Leaf(
                    "lab.kafka:demo", "start a Kafka, break it, look at it", "eoctl lab demo"
                ),
            },
        ),
        "explain": Leaf(
            "explain:explain",
            "what a verdict, rule, error, heading or term means",
            "eoctl explain orphan",
        ),
        "completion": Leaf(
            "completion:completion",
            "print the completion script for bash, zsh or fish",
            'eval "$(eoctl completion bash)"',
        ),
    },
)


class Commands(MutableMapping[str, Any]):
    """The click commands of one branch, each made when it is first asked for."""

    def __init__(self, branch: Branch, make: Any) -> None:
        self._branch = branch
        self._make = make
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = self._make(name, self._branch.commands[name])
        return self._made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        del self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._branch.commands)

    def __len__(self) -> int:
        return len(self._branch.commands)
