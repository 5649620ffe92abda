"""The command without a cluster: a bundle is refused, and what its page shows."""

import pytest

from eoctl.cli.main import run
from eoctl.render.doctor_words import doctor_lines
from eoctl.render.explain import part
from recovery.answers import Answer
from recovery.diagnose.diagnosis_rows import EvidenceRow
from recovery.doctor.doctor_rows import DoctorRow, SubjectRow
from recovery.values import replace


@pytest.mark.parametrize("words", [("doctor",), ("check", "--doctor")])
def test_a_bundle_is_refused(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*words, "--from", "incident.eoctl"]) == 4
    assert "a bundle only answers what was seen" in capsys.readouterr().err


def row(name: str, **more: str) -> DoctorRow:
    return DoctorRow(
        rule="one-copy-suffices",
        subject=SubjectRow(kind="topic", name=name),
        state="finding",
        evidence=[EvidenceRow(code="copies", text="min.insync.replicas is 1", data={})],
        harm=part("one-copy-suffices", "finding", "harm") or "",
        remedy="Set it to 2.",
        command=more.get("command"),
        sources=["min.insync.replicas"],
        lacks=None,
    )


def page(*rows: DoctorRow, width: int | None = 80) -> list[str]:
    answer = Answer("doctor", "c", 0, rows)
    return list(doctor_lines(answer, width, ascii_only=True))


def test_what_was_seen_of_an_unknown_is_not_said_to_be_unseen() -> None:
    evidence = [
        EvidenceRow(code="version", text="broker 1: Kafka 4.3.x", data={}),
        EvidenceRow(code="not-seen", text="hidden", data={}),
    ]
    unknown = replace(row("orders"), state="unknown", evidence=evidence)
    labels = [line.split("  ")[0].strip() for line in page(unknown)[1:3]]
    assert labels == ["seen", "not seen"]


def test_the_page_fits_the_terminal_and_commands_stay_whole() -> None:
    command = f"kafka-configs.sh --bootstrap-server {'b' * 80}:9092 --alter"
    lines = page(row("orders", command=command), row("payments"))
    assert lines[0] == "! one-copy-suffices  topic orders"
    assert f"   {command}" in lines
    assert [line for line in lines if len(line) > 80] == [f"   {command}"]
    assert lines.count("") == 1


def test_names_of_a_cluster_are_harmless() -> None:
    [first, *_] = page(row("a\x1b[2Jb\u202e"), width=None)
    assert first == r"! one-copy-suffices  topic a\x1b[2Jb\u202e"
