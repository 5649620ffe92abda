"""List the drills: what each plants, what it needs from the lab, and its story.

A story names symptoms: what readers notice, and whom to ask. It never names the cause.
"""

from eoctl.lab.breaks.owned import ABORT_CYCLE
from eoctl.lab.breaks.stage import BreakKind, Stage
from eoctl.lab.breaks.truth import GroundTruth
from eoctl.lab.drills import planting, work
from eoctl.lab.drills.planting import Plant, Scene
from recovery.values import Value

STUCK = "readers-stuck"
CYCLE = {ABORT_CYCLE: "3600000"}


class Drill(Value):
    """One drill. page: of docs/runbooks. story: with `{topics}` in place of the held ones.

    cycle: coordinators must not end transactions during this drill.
    """

    name: str
    title: str
    page: str
    story: str
    plants: tuple[Plant, ...]
    brokers: int = 1
    cycle: bool = False

    @property
    def needs(self) -> tuple[str, ...]:
        """Return the options of `lab up` without which the drill is refused."""
        brokers = [f"--brokers {self.brokers}"] if self.brokers > 1 else []
        return (*brokers, *(f"--set {k}={v}" for k, v in CYCLE.items() if self.cycle))

    @property
    def conditions(self) -> BreakKind:
        """Return what the drill needs, in the form that breaks use."""
        return BreakKind(
            self.name,
            self.title,
            _nothing,
            brokers=self.brokers,
            settings=CYCLE if self.cycle else {},
        )


async def _nothing(stage: Stage) -> list[GroundTruth]:
    return []


async def behind_marker(scene: Scene) -> None:
    """Plant an orphan whose id has committed on its partition before."""
    await planting.orphan(scene, "marked")


READERS = (
    "The read_committed consumers of {topics} stand still. They log no error; their lag grows."
)

OWN = Drill(
    "twin",
    "your own incident, from its bundle: `eoctl lab drill BUNDLE`",
    STUCK,
    f"{READERS} It is what your bundle saw at {{at}}, on a twin of that cluster: no client runs, "
    "and nothing ends by itself.",
    (),
)
"""Not planted: `own` makes it of a bundle."""

DRILLS: dict[str, Drill] = {
    drill.name: drill
    for drill in (
        Drill(
            "orphan",
            "a hanging transaction beside one that works",
            STUCK,
            f"{READERS} Last night a broker was restarted. Somebody in the chat says: just fence "
            "everything that is open.",
            (planting.orphan, planting.alive),
        ),
        Drill(
            "dead-owner",
            "an application died with its transaction open",
            STUCK,
            f"{READERS} A host was lost some minutes ago; which instances ran there, nobody "
            "remembers.",
            (planting.dead, planting.alive),
        ),
        Drill(
            "overdue",
            "two transactions past their timeout",
            STUCK,
            f"{READERS} Both have waited for longer than their transactions may last.",
            (planting.overdue,),
            cycle=True,
        ),
        Drill(
            "behind-marker",
            "readers stand although its id has committed",
            STUCK,
            f"{READERS} The application's log says that its last transaction was committed.",
            (behind_marker,),
        ),
        Drill(
            "not-flink",
            "two ids that look like Flink's",
            STUCK,
            f"{READERS} Somebody says: these ids are Flink's, it will clean up by itself.",
            (planting.not_flink,),
        ),
        Drill(
            "elsewhere",
            "an id holds two partitions, and is at home on one",
            STUCK,
            f"{READERS} The application that writes there is in the middle of its largest batch.",
            (planting.elsewhere,),
        ),
        Drill(
            "lost-markers",
            "two transactions were decided, and their readers do not hear of it",
            STUCK,
            f"{READERS} A broker was restarted; the applications have gone on, and log success.",
            (planting.lost_markers,),
            brokers=2,
        ),
        Drill(
            "broker-leaves",
            "a broker leaves while you look",
            "coordinator-unavailable",
            f"{READERS} A broker's host has had trouble with its disk all night.",
            (planting.leaving,),
            brokers=2,
        ),
        Drill(
            "zombie",
            "a process that was believed dead writes",
            "zombie",
            f"{READERS} After a failover two applications have ProducerFencedException in their "
            "logs: one of them is told to be taken over by its old process.",
            (planting.zombies,),
        ),
        Drill(
            "fence-storm",
            "an application that is fenced again and again",
            "fence-storm",
            f"{READERS} One application logs ProducerFencedException, starts again, and logs it "
            "again. Its team says: nobody else uses our id; just fence it once more.",
            (planting.storm, planting.orphan),
        ),
        Drill(
            "flink-checkpoint",
            "a Flink job is down, and its checkpoint was saved",
            "flink-checkpoint",
            f"{READERS} A Flink job writes there; it is down, and cannot be restored for hours. "
            "Its last checkpoint was copied to {checkpoint}.",
            (planting.checkpoint,),
        ),
        Drill(
            "connect",
            "a worker of Kafka Connect is gone",
            STUCK,
            f"{READERS} Source connectors of Kafka Connect write there; a host with one of their "
            "workers was lost. Somebody says: Connect cleans up by itself, just fence all of it.",
            (planting.connect,),
        ),
        Drill(
            "crashed-job",
            "a job died midway",
            "crashed-job",
            "The job `sales-pricer` was killed. It reads `sales`, writes `sales-priced`, and must "
            "write each output once. Its application file is {app_file}; `eoctl lab job "
            "--env-file FILE` starts it again.",
            (work.job,),
        ),
        Drill(
            "lost-store",
            "a state store is gone",
            "lost-store",
            "The disk with the totals of `sales-pricer` is gone. Its changelog is "
            "`sales-totals-changelog` (format plain). An application waits for the state in the "
            f"empty topic `{work.TOTALS}`.",
            (work.store,),
        ),
        Drill(
            "duplicates",
            "records are duplicated downstream",
            "duplicates",
            f"Sums over `{work.DOUBLED}` are too high since a restart. An order's key is its "
            f"number. Readers wait for the clean copy in the empty topic `{work.CLEAN}`.",
            (work.duplicates,),
        ),
        Drill(
            "mix",
            "many at once, and a broker that leaves midway",
            STUCK,
            f"{READERS} It has been a long night, and it is not the same everywhere. A broker's "
            "host has had trouble with its disk.",
            (planting.mix,),
            brokers=2,
            cycle=True,
        ),
    )
}
