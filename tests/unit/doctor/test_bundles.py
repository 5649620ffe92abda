"""`doctor` on a bundle: the facts come back as they were; what it lacks is unknown."""

import asyncio
import json
from pathlib import Path

import pytest

from eoctl.cli.main import run
from eoctl.kafka.ask.coordinators import TRANSACTION_STATE, hidden_topic
from eoctl.operations.doctor.doctor_answer import doctor
from eoctl.operations.inspect.lists import without_history
from eoctl.operations.inspect.offline import Offline
from eoctl.stores import bundle_files
from eoctl.stores.bundle_files import SeenDoctor
from recovery.doctor.commit_ways import CommitWays
from recovery.doctor.doctor_rows import DoctorRow
from recovery.doctor.findings import DoctorFacts, Outage
from recovery.doctor.rules import WITHOUT_APP
from recovery.facts import GroupFacts, Transactions
from recovery.formats.consumer_offsets import OffsetKey
from recovery.values import replace
from tests.unit.doctor.test_version_rules import NEW, running
from tests.unit.doctor_facts import HOUR, NOW, REFUSED, txn, with_topic

KEPT = Path(__file__).parents[2] / "kept" / "0.2.0" / "incident.eoctl"
WAYS = {OffsetKey("billing", "orders", 0): CommitWays(4, 3, 2, 1_000, (7, 42))}


def everything() -> DoctorFacts:
    """Facts with something in each field that is not plain."""
    return replace(
        running(NEW, NEW, NEW),
        topics=with_topic("orders", 1).topics,
        topic_settings=with_topic("orders", 1).topic_settings,
        held=("orders",),
        transactions=Transactions((txn("slow", 2 * HOUR, "orders"),)),
        groups=(GroupFacts("billing", "Stable", members=(("c", "h"),)),),
        client_versions={"slow": 1},
        commit_ways=WAYS,
        outages=(Outage("sink-0-7", NOW, 900_000, NOW + 901_000, NOW, NOW + HOUR),),
        missing_brokers=(REFUSED,),
    )


def stored(facts: DoctorFacts, folder: Path) -> Offline:
    """A bundle of 0.2.0 with these facts added, written and read again."""
    kept, _ = bundle_files.read(KEPT)
    made = replace(kept, doctor=SeenDoctor.of(facts), transactions=facts.transactions)
    bundle_files.write(made, folder / "made")
    return Offline(bundle_files.read(folder / "made")[0])


def rows(source: Offline, *names: str) -> list[DoctorRow]:
    answer = asyncio.run(doctor(source, source.context, names))
    return [row for row in answer.rows if isinstance(row, DoctorRow)]


def test_a_bundle_gives_the_facts_back(tmp_path: Path) -> None:
    facts = everything()
    assert asyncio.run(stored(facts, tmp_path).examined(())) == facts


def test_what_was_not_asked_about_a_name_is_unknown(tmp_path: Path) -> None:
    facts = everything()
    source = stored(
        replace(facts, topics={**facts.topics, "other": facts.topics["orders"]}), tmp_path
    )
    assert {row.subject.name for row in rows(source, "orders")} >= {"orders"}
    of_topics = [row for row in rows(source, "other") if row.subject.kind == "topic"]
    unknown = [row for row in of_topics if row.state == "unknown"]
    assert {row.rule for row in unknown} == {
        "one-copy-suffices",
        "every-copy-needed",
        "unclean-election",
    }
    assert {row.remedy for row in unknown} == {"Ask the cluster: leave out --from."}


def test_a_cluster_without_a_transaction_is_not_unknown(tmp_path: Path) -> None:
    none = replace(running(NEW, NEW, NEW), transactions=Transactions())
    gap = without_history(Transactions())
    assert gap
    source = stored(none, tmp_path)
    source = Offline(replace(source._bundle, transactions=Transactions(missing=gap)))
    assert rows(source) == []


def test_transactions_that_were_not_visible_stay_unknown_in_a_bundle(tmp_path: Path) -> None:
    gap = hidden_topic(TRANSACTION_STATE, "brokers list transactions")
    source = stored(running(NEW, NEW, NEW), tmp_path)
    source = Offline(replace(source._bundle, transactions=Transactions(missing=(gap,))))
    assert asyncio.run(source.examined(())).transactions.missing == (gap,)
    source._topics.pop(TRANSACTION_STATE, None)
    asked, _ = asyncio.run(source.find(["id"]))
    assert asked.missing == (gap,)
    assert "unknown" in {row.state for row in rows(source)}


def test_a_bundle_of_an_older_version_cannot_tell_most_rules(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its transactions and partitions count; each rule about settings says what to do."""
    assert run(["doctor", "--from", str(KEPT), "-o", "json"]) == 3
    said = json.loads(capsys.readouterr().out)
    found = said["rows"]
    assert {row["state"] for row in found} == {"unknown"}
    from_ids = {"timeout-long", "two-phase-off"}  # none is long, none is of two phases
    ids_alone = {"few-copies", "idle-id-in-use", "changelog-deletes", "changelog-forgets-deletes"}
    assert {row["rule"] for row in found} >= {r.name for r in WITHOUT_APP} - from_ids - ids_alone
    assert {row["remedy"] for row in found} == {"Ask the cluster: leave out --from."}
    assert {e["error"] for e in said["errors"]} == {"NOT_IN_BUNDLE"}


def test_check_reads_them_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "--doctor", "--from", str(KEPT), "-o", "json"]) == 1
    by_rule = {row["rule"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert by_rule["doctor.verification-off"]["ok"] is None
    assert len([name for name in by_rule if name.startswith("doctor.")]) == len(WITHOUT_APP)
