"""Say when each transaction ends on its own, for the dashboard: one more request, for settings.

`why` reads all waiting records, which is expensive; here the oldest waiting record is the first
batch of the transaction at the LSO, which the judgement has read anyway.
"""

from eoctl.operations.inspect.source import Source
from recovery.diagnose.diagnosis import Diagnosis
from recovery.diagnose.prospect import prospect
from recovery.errors import EoctlError
from recovery.facts import TopicPartition

Prospects = dict[str, list[str | int | None]]
"""By `TOPIC:P PID`: ending, deletion (recovery.diagnose.prospect), deleted_at (epoch ms)."""


async def prospects(source: Source, d: Diagnosis) -> Prospects:
    """Return what waiting leads to; without the topics' settings no deletion is known."""
    oldest: dict[TopicPartition, int | None] = {
        j.about.topic_partition: j.start.timestamp
        for j in d.judged
        if j.start is not None and j.about.start_offset == j.partition.last_stable_offset
    }
    try:
        configs, _ = await source.topic_configs(sorted({j.about.topic for j in d.judged}))
    except EoctlError:
        configs = {}
    found: Prospects = {}
    for j in d.judged:
        about = j.about
        config = configs.get(about.topic, {})
        p = prospect(j.verdict, oldest.get(about.topic_partition), config, source.now())
        found[f"{about.name} {about.producer_id}"] = [p.ending, p.deletion, p.deleted_at]
    return found
