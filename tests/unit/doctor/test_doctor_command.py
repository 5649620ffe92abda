"""The command without a cluster: what is refused, and what its page shows."""

from typing import Literal

import pytest

from eoctl.cli.main import run
from eoctl.render.columns.doctor import DOCTOR
from eoctl.render.doctor_words import (
    doctor_lines,
    login_notes,
    names_notes,
    sign_words,
    subject_words,
)
from eoctl.render.explain import part
from recovery.answers import Answer
from recovery.diagnose.diagnosis_rows import EvidenceRow
from recovery.doctor.doctor_rows import DoctorRow, SubjectRow
from recovery.doctor.findings import SubjectKind
from recovery.doctor.rules import RULES
from recovery.values import Reason, replace


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--broker-version", "4.0.1"), "--broker-version: counts only for doctor; add --doctor"),
        (("--doctor", "--broker-version", "new"), "'new' is no version of Apache Kafka"),
    ],
)
def test_a_version_that_cannot_count_is_refused(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["check", *words, "--bootstrap-server", "localhost:1"]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("name", ["", "orders*", "order?"])
def test_a_name_that_is_a_pattern_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "orders", name, "--bootstrap-server", "localhost:1"]) == 2
    assert f"'{name}' is no name of a topic" in capsys.readouterr().err


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


def test_names_in_a_sentence_are_escaped_once() -> None:
    name = "a\x1b[2Jb"
    for sign in (
        Reason("ids", {"names": [name], "number": 1}),
        Reason("client-lives", {"client": name}),
    ):
        evidence = [EvidenceRow(code=sign.code, text=sign_words(sign), data={})]
        seen = page(replace(row("orders"), evidence=evidence), width=None)[1]
        assert r"'a\x1b[2Jb'" in seen
        assert r"\\x1b" not in seen
    long = sign_words(Reason("client-lives", {"client": "x" * 61}))
    assert f"'{'x' * 59}…'" in long


def test_an_id_whose_name_is_an_asterisk_is_not_any_id() -> None:
    def subject(kind: SubjectKind, state: Literal["finding", "unknown"]) -> str:
        about = SubjectRow(kind=kind, name="*")
        return subject_words(replace(row("x"), subject=about, state=state))

    assert subject("transactional-id", "finding") == "transactional-id '*'"
    assert subject("transactional-id", "unknown") == "any transactional-id"
    assert subject("cluster", "finding") == subject("cluster", "unknown") == "cluster"


def test_commands_on_a_secured_listener_need_a_login() -> None:
    [note] = login_notes(
        [row("orders", command="kafka-configs.sh")], {"security.protocol": "sasl_ssl"}
    )
    assert "--command-config FILE" in note
    assert login_notes([row("orders", command="kafka-configs.sh")], {}) == []
    assert login_notes([row("orders")], {"security.protocol": "sasl_ssl"}) == []


def test_names_count_only_the_rules_that_can_be_about_them() -> None:
    for number in (len(RULES), 13):
        answer = Answer("doctor", "c", 0, [], extra={"rules": number, "named": []})
        assert DOCTOR.summary(answer) == f"no finding by {number} rules"
    assert names_notes(["orders"]) == [
        "7 rules about brokers and the cluster left out: leave out the names to see them"
    ]
    assert names_notes([]) == []
