"""`state compare` on Spark: a job compares two states in the executors' tasks."""

import json
from collections.abc import Iterator

import msgspec

from eoctl.kafka.connection.access import Access
from eoctl.operations.jobs.spark_launch import Show, Spark, launch
from eoctl.stores import private
from recovery.state.compare import CompareFound
from recovery.state.state_jobs import CompareRequest, NamedState
from recovery.values import Value


class OnSpark(Value):
    """The other engine. show: called with the job's progress; seconds: of the job."""

    spark: Spark
    show: Show
    seconds: float | None = None

    def found(
        self, a: NamedState, b: NamedState, most: int, *, timestamps: bool
    ) -> Iterator[CompareFound]:
        """Yield what each task of `compare_tasks` found. Raises what `launch` raises."""
        # what is found holds keys and values: the job's folder must not keep them
        with private.temporary("compare-found") as folder:
            answer = folder / "found.json"
            request = CompareRequest(a=a, b=b, most=most, timestamps=timestamps, answer=str(answer))
            launch(
                "compare_states",
                request.model_dump(mode="json"),
                Access({}),
                self.spark,
                summary=f"comparison of {request.a.address} with {request.b.address}",
                show=self.show,
                seconds=self.seconds,
            )
            for found in json.loads(answer.read_bytes()):
                yield msgspec.convert(found, CompareFound)
