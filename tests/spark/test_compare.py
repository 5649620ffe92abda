"""`state compare` on Spark: the answer of the local engine, which is that of two dicts."""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from eoctl.kafka.connection.access import Access
from eoctl.lab.cluster import Lab
from eoctl.operations.jobs.spark_launch import Spark
from eoctl.operations.state import spark_compare
from eoctl.operations.state.spark_compare import OnSpark
from eoctl.stores.state import finished_rows
from eoctl.stores.state import folder as state_folder
from recovery.answers import Answer
from recovery.errors import RefusedError
from recovery.state.state_jobs import NamedState
from recovery.state.state_rows import StateCompareRow
from recovery.values import replace
from spark_jobs import compare_states
from spark_jobs.session import states
from spark_jobs.session.progress import JobProgress
from tests.kafka.command import eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.state_oracle import fill
from tests.share import fewer
from tests.spark.test_audit import SPARK
from tests.unit.state.test_state_compare import Entries, compared, state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture
def on(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> OnSpark:
    """The job in this session."""

    def launch(
        name: str, request: Mapping[str, Any], access: Access, *_: Any, **__: Any
    ) -> Mapping[str, Any]:
        assert name == "compare_states"
        return compare_states.work(spark, request, access, JobProgress(None))

    monkeypatch.setattr(spark_compare, "launch", launch)
    return OnSpark(Spark(), lambda report: None)


def same(a: Path, b: Path, on: OnSpark, **words: Any) -> Answer:
    """The answer of both engines."""
    local, found = compared(a, b, **words), compared(a, b, on=on, **words)
    assert (local.extra.pop("engine"), found.extra.pop("engine")) == ("local", "spark")
    assert replace(found, collected_at=0) == replace(local, collected_at=0)
    return found  # type: ignore[no-any-return]


def test_what_differs_is_found_and_counted(
    on: OnSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two partitions in many parts, one whose digests agree, one that a side lacks."""
    monkeypatch.setattr(finished_rows, "ROWS_AT_ONCE", fewer(5_000, 40))
    rng, size = random.Random(9), fewer(100_000, 300)
    whole: Entries = {
        p: {b"k%d" % n: (n, b"v%d" % rng.randrange(9)) for n in range(size)} for p in range(3)
    }
    other = {p: dict(keys) for p, keys in whole.items()}
    for p in (0, 2):
        for n in rng.sample(range(size), size // 10):
            change = rng.choice(("gone", "value", "time"))
            if change == "gone":
                del other[p][b"k%d" % n]
            else:
                stamp, value = whole[p][b"k%d" % n]
                changed = (stamp, b"other") if change == "value" else (-1, value)
                other[p][b"k%d" % n] = changed
        other[p] |= {b"new%d" % n: (n, b"") for n in range(7)}
    whole[3] = {b"alone": (1, b"v")}
    a, b = state(tmp_path / "a", whole), state(tmp_path / "b", other)
    for timestamps in (True, False):
        found = same(a, b, on, most=10**6, timestamps=timestamps)
        every = [row for row in found.rows if isinstance(row, StateCompareRow)]
        rows = {row.partition: row for row in every if row.key is None}
        for p, mine in whole.items():
            theirs = other.get(p, {})
            pairs = [(mine[k], theirs[k]) for k in mine.keys() & theirs.keys()]
            differ = sum(x != y if timestamps else x[1] != y[1] for x, y in pairs)
            row = rows[p]
            assert (row.rows_a, row.rows_b) == (len(mine), len(theirs))
            assert row.only_a == len(mine.keys() - theirs.keys())
            assert (row.only_b, row.different) == (len(theirs.keys() - mine.keys()), differ)
        assert rows[1].difference is None
        counts = ((r.only_a, r.only_b, r.different) for r in rows.values())
        total = sum(n or 0 for row in counts for n in row)
        assert found.extra["shown"] == total > 50
    assert same(a, b, on, most=5).extra["shown"] == 5
    assert same(a, a, on).exit_status == 0


def test_files_that_are_not_the_manifests_and_states_that_executors_do_not_see(
    on: OnSpark, tmp_path: Path
) -> None:
    entries: Entries = {0: {b"k": (1, b"v")}, 1: {b"x": (2, b"w")}}
    a, b = state(tmp_path / "a", entries), state(tmp_path / "b", entries)
    assert same(a, b, on).exit_status == 0
    file = b / state_folder.read(b).partitions[1].files[0].path
    file.write_bytes(file.read_bytes() + b"!")
    with pytest.raises(RefusedError, match="has changed since the manifest was written"):
        compared(a, b, on=on)
    for name, why in ((a, "executors see another state"), (tmp_path / "c", "do not see this")):
        with pytest.raises(RefusedError, match=why):
            states.opened(NamedState(address=f"{name}/manifest.json", sha256="0" * 64))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_launched_comparison_with_the_live_changelog(
    lab1: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    """What is rebuilt for it is removed; a dump is compared in this process."""
    name, scratch = topic(lab1, 2, config={"retention.ms": "-1"}), tmp_path / "shared"
    fill(lab1, name, seed=6, records=3_000, keys=400, partitions=2)
    how = ("--format", "plain", "--at", "lso")
    made = eoctl("state", "rebuild", name, *how, "--output", str(tmp_path / "a"), lab=lab1)
    assert made.status == 0, made.text
    words = ("state", "compare", str(tmp_path / "a"))
    for more in ((), ("--scratch", str(scratch))):
        ran = eoctl(*words, "live", *more, *SPARK, "-o", "json", lab=lab1, timeout=300)
        assert ran.status == 0, ran.text
        assert (ran.json["equal"], ran.json["engine"]) == (True, "spark")
        assert sum(row["rows_a"] for row in ran.rows) == sum(r["rows"] for r in made_rows(tmp_path))
    assert list(scratch.glob("*")) == []
    for refused, where in (
        ((str(tmp_path / "x.jsonl"), *SPARK), "--engine spark"),
        ((str(tmp_path / "a"), "--scratch", str(scratch)), "--scratch"),
    ):
        ran = eoctl(*words, *refused)
        assert (ran.status, where in ran.text) == (2, True), ran.text


def made_rows(folder: Path) -> list[dict[str, int]]:
    manifest = state_folder.read(folder / "a")
    return [{"rows": p.digest.rows} for p in manifest.partitions]
