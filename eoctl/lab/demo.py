"""`eoctl lab demo` as a list of steps: a sentence, and the command that shows it.

The steps run in this order in their own lab, each command as its own process, so the output is what
users get when they type the commands. A new capability adds its steps here.
"""

from recovery.values import Value

NAME = "demo"
CONTEXT = f"lab-{NAME}"

# How a failing order sender and a failing payment sender look.
ORDERS, PAYMENTS, REFUNDS = "orders", "payments", "refunds"


class Step(Value):
    """says: what a newcomer must know before the command. command: words after `eoctl`.

    exits: the correct exit statuses (1: a judging command found something; -9: it was killed).
    into: a file that receives the output. `{job}` in words is the practice job's folder.
    """

    says: str
    command: tuple[str, ...]
    exits: tuple[int, ...] = (0,)
    into: str | None = None


def _break(kind: str, *options: str) -> tuple[str, ...]:
    return ("lab", "break", kind, "--name", NAME, *options, "-o", "table")


STEPS: tuple[Step, ...] = (
    Step("A real Kafka, on this machine only.", ("lab", "up", "--name", NAME)),
    Step(
        "Trouble 1. A producer opens a transaction, writes, and does not end it. That is normal "
        "for a while: it lives, and its transaction coordinator knows it.",
        _break(
            "open", "--topic", ORDERS, "--partition", "3", "--transactional-id", "order-sender-0"
        ),
    ),
    Step(
        "Trouble 2. Records of a transaction that no coordinator knows: nobody will ever end it "
        "(KAFKA-14402). Their producer's clock says that they are 14 minutes old.",
        _break("orphan", "--topic", PAYMENTS, "--partition", "1", "--age", "14m"),
    ),
    Step(
        "Trouble 3. A second producer takes over the transactional id of a first one, which does "
        "not know that and goes on writing: a zombie. The broker refuses what it writes.",
        _break("zombie", "--topic", REFUNDS, "--transactional-id", "refund-sender-0"),
    ),
    Step(
        "What is wrong with this cluster, in one screen, the worst first. It ends with 1, as grep "
        "does: a script sees that there is a finding.",
        ("status",),
        exits=(1,),
    ),
    Step(
        "Readers with isolation.level=read_committed see a partition up to its last stable offset "
        "(LSO). Where it is below the high watermark (HW), records are held back. By whom?",
        ("lso",),
    ),
    Step(
        "The story of the worst one: what readers see, who holds it, the verdict with its reasons "
        "and the one safe remedy. Its last line is a command to paste: it shows a plan and "
        "changes nothing.",
        ("why", f"{PAYMENTS}:1"),
        exits=(1,),
    ),
    Step(
        "That command. What it will do, on which facts, and with which hash: nothing is sent.",
        ("txn", "abort", f"{PAYMENTS}:1", "--pid", "1", "--start-offset", "3"),
    ),
    Step(
        "The same with --execute. Everything is looked at again right before, the marker goes to "
        "one partition, and what became of it is read from the partition, not from the answer. "
        "--yes stands for the question that a person would be asked.",
        (
            *("txn", "abort", f"{PAYMENTS}:1", "--pid", "1", "--start-offset", "3"),
            *("--execute", "--yes"),
        ),
    ),
    Step(
        "The readers of payments proceed: the LSO is at the high watermark, and of the offsets "
        "that they have passed now, three are the dropped transaction's.",
        ("lso", f"{PAYMENTS}:1"),
    ),
    Step(
        "Counted exactly, record by record: what they get, and what they do not.",
        ("offsets", "count", f"{PAYMENTS}:1", "earliest", "lso"),
    ),
    Step(
        "Who changed what, when: every change is in the journal, before it is made.",
        ("journal", "list"),
    ),
    Step(
        "Every transactional id that a coordinator knows. payments.1 is there, but nothing is open "
        "on it: its coordinator had no transaction to end, so nobody would have freed payments:1.",
        ("txn", "list"),
    ),
    Step(
        "The partitions' side of it: who wrote last, with which epoch, and from which offset on a "
        "transaction is open. --resolve asks the coordinators who the producers are.",
        ("producers", "--resolve"),
    ),
    Step(
        "Trouble 4. A job prices sales: it reads, writes, and commits input and output offset as a "
        "pair every 100 records. It is killed midway: some outputs are there that no commit knows.",
        ("lab", "job", "--name", NAME, "--die-after", "1742"),
        exits=(-9,),
    ),
    Step(
        "Where may it start again, so that each sale is priced once? At the commit; the outputs "
        "behind it come again and must be dropped: counted, never subtracted. Nothing is changed.",
        ("restart", "plan", "{job}/sales-pricer.toml", "--out", "{job}/plan.json"),
    ),
    Step(
        "The plan is carried out: the partition that never had a commit gets one. What was planned "
        "is looked at and counted again right before.",
        ("restart", "apply", "{job}/plan.json", "--execute", "--yes"),
    ),
    Step(
        "The numbers, as the job's wrapper script takes them.",
        ("restart", "plan", "{job}/sales-pricer.toml", "--env"),
        into="{job}/restart.env",
    ),
    Step(
        "The second run starts with them, drops what is there already, and ends. EQUAL: its "
        "outputs are exactly those of a run that was never interrupted, in their order.",
        ("lab", "job", "--name", NAME, "--env-file", "{job}/restart.env"),
    ),
    Step(
        "Trouble 5. The job's state store, each customer's total, is lost. What it held was "
        "written down right before, so that a rebuild can be compared with it.",
        ("lab", "job", "--name", NAME, "--lose-store"),
    ),
    Step(
        "It is made again on Spark from its changelog, up to the last stable offset as it is now: "
        "an explicit cut, so that a second run gives the same. The digest says what it is.",
        (
            *("state", "rebuild", "sales-totals-changelog", "--format", "plain", "--at", "lso"),
            *("--engine", "spark", "--master", "local[2]", "--output", "{job}/rebuilt"),
            *("--timeout", "5m"),
        ),
    ),
    Step(
        "The rebuilt state against what the store held: entries only here, only there, different.",
        ("state", "compare", "{job}/rebuilt", "{job}/totals.jsonl"),
    ),
    Step(
        "One customer in it.",
        ("state", "show", "{job}/rebuilt", "customer-42"),
    ),
)

NEXT = (
    f"eoctl --context {CONTEXT} lso --watch",
    f"eoctl --context {CONTEXT} lso {ORDERS} {PAYMENTS} -o json",
    f"eoctl --context {CONTEXT} txn describe order-sender-0",
    "eoctl lab break --help",
)
STOP = f"eoctl lab down --name {NAME}"
