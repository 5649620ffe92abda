"""Find traces of late transactions' owners, and of those who should have ended them."""

from collections.abc import Sequence

from eoctl.kafka.ask import configs, groups
from eoctl.kafka.connection.cluster import Cluster
from recovery.diagnose.case import possible_groups
from recovery.facts import GroupFacts, Missing, TransactionFacts
from recovery.values import Value

ABORT_CYCLE = "transaction.abort.timed.out.transaction.cleanup.interval.ms"


class Owners(Value):
    """Fields of a Sample (see there)."""

    abort_cycles: tuple[tuple[int, int], ...] = ()
    groups: tuple[GroupFacts, ...] = ()
    groups_missing: tuple[Missing, ...] = ()


async def look_for_life(
    cluster: Cluster,
    late: Sequence[TransactionFacts],
    guessed: Sequence[TransactionFacts] = (),
) -> Owners:
    """Read the abort cycles of late transactions' coordinators, and the groups of their names.

    guessed: others whose owner only the name suggests; the groups of their names are read too. A
    setting that may not be read is left out; without transactions nothing is asked. Groups are
    requested by name: a list omits, without an error, those that we may not DESCRIBE.
    """
    if not late and not guessed:
        return Owners()
    settings, _ = await configs.broker_configs(cluster, (ABORT_CYCLE,)) if late else ({}, [])
    cycles = {
        t.coordinator: int(value)
        for t in late
        if (value := settings.get(str(t.coordinator), {}).get(ABORT_CYCLE))
    }
    ids = {t.transactional_id for t in (*late, *guessed)}
    names = {group for name in ids for group in possible_groups(name)}
    found, missing = await groups.find_groups(cluster, sorted(names))
    there = tuple(g for g in found if g.state != "Dead")
    return Owners(tuple(sorted(cycles.items())), there, tuple(missing))
