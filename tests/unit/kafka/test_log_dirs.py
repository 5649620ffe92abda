"""Topics that a listing leaves out, where not every log directory is described."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from eoctl.kafka.ask.log_dirs import DENIED, Denied, denied_topics
from eoctl.kafka.connection.cluster import PROBE_TOPIC, PartitionMetadata, TopicMetadata


def described(*topics: str, error: int = 0) -> Any:
    partition = SimpleNamespace(partition_index=0, partition_size=1, is_future_key=False)
    named = [SimpleNamespace(name=name, partitions=[partition]) for name in topics]
    return SimpleNamespace(results=[SimpleNamespace(error_code=error, topics=named)])


class Shown:
    """A cluster of two brokers that shows `seen`; of other names it says if they are denied."""

    def __init__(
        self, dirs: Mapping[int, Any], replicas: tuple[int, ...], denied: Collection[str]
    ) -> None:
        self.brokers = dict.fromkeys((1, 2))
        self._dirs, self._replicas, self._denied = dirs, replicas, denied

    async def metadata(self, names: Sequence[str] | None) -> Any:
        log = PartitionMetadata("seen", 0, 1, 0, self._replicas, None)
        topics = {"seen": TopicMetadata("seen", None, False, (log,), None)}
        if names is not None:
            topics = {
                name: TopicMetadata(name, None, False, (), DENIED if name in self._denied else "X")
                for name in names
            }
        return SimpleNamespace(topics=topics)

    async def ask(self, *question: Any) -> None:
        raise AssertionError

    async def ask_each(self, questions: Mapping[int, Any]) -> Any:
        assert questions.keys() == self.brokers.keys()
        return self._dirs, {b: OSError() for b in questions.keys() - self._dirs.keys()}


def asked(dirs: Mapping[int, Any], replicas: tuple[int, ...] = (1, 2), *denied: str) -> Denied:
    cluster = Shown(dirs, replicas, denied)
    return asyncio.run(denied_topics(cast("Any", cluster), ["likely", "seen"]))


WHOLE = {1: described("seen"), 2: described("seen", "hidden")}


def test_brokers_name_what_is_hidden() -> None:
    assert asked(WHOLE, (1, 2), "hidden") == Denied(("hidden",), all_known=True)
    assert asked(WHOLE) == Denied((), all_known=True)


@pytest.mark.parametrize(
    ("dirs", "replicas"),
    [
        (WHOLE, (1, 2, 3)),  # broker 3 is away: the cluster does not list it
        ({1: described("seen")}, (1, 2)),  # broker 2 does not answer
        ({1: described("seen"), 2: SimpleNamespace(results=[])}, (1, 2)),  # not granted
        ({1: described("seen"), 2: described(error=56)}, (1, 2)),  # KAFKA_STORAGE_ERROR
    ],
)
def test_what_is_not_described_may_hide_more(dirs: Any, replicas: tuple[int, ...]) -> None:
    assert asked(dirs, replicas) == Denied((), all_known=False)
    assert asked(dirs, replicas, "likely") == Denied(("likely",), all_known=False)
    assert asked(dirs, replicas, "likely", PROBE_TOPIC).topics == (), "every name is denied"


def test_likely_names_are_asked_for_even_if_all_answer() -> None:
    assert asked(WHOLE, (1, 2), "likely").topics == ("likely",)
