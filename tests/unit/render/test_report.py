"""The page of `report`: names of the cluster are text in it, whatever they hold."""

from html.parser import HTMLParser
from typing import Any

import pytest

from eoctl.render.report.moments import moments
from eoctl.render.report.page import Change, Report, page
from eoctl.render.sanitise import visible
from recovery.answers import Answer
from recovery.change.journal_rows import JournalEventRow, JournalRow
from recovery.diagnose.diagnosis_rows import EvidenceRow
from recovery.diagnose.why_rows import OwnerRow
from recovery.doctor.doctor_rows import DoctorRow, SubjectRow
from recovery.inspect.cluster_rows import StripRow
from recovery.row import ErrorRow
from tests.unit.render.test_render_why import HOSTILE, NOW, hanging, page_row

NAMES = [
    *HOSTILE,
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onload='alert(1)",
    "</style></title></pre><h1>",
    "<!-- ",
    "&lt;b&gt;",
    "]]>",
    "javascript:alert(1)",
]
EXTRA = {
    "context": "prod",
    "brokers_up": 3,
    "brokers_known": 3,
    "held_back": 1,
    "held_offsets": 1204,
    "scanned": 9,
    "left_out": 0,
}


class Parsed(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, tuple[str, ...]]] = []
        self.links: list[str] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, tuple(name for name, _ in attrs)))
        self.links += [v or "" for name, v in attrs if name in ("href", "src", "action")]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def report(name: str, **more: Any) -> Report:
    """One of each part, all that somebody else named being `name`."""
    strip = [
        StripRow(topic=name, partition=3, first_offset=182736450, end_offset=182737654, kind="open")
    ]
    held = hanging(
        topic=name, transactional_id=name, start_timestamp=NOW - 9_000, ends_at=NOW + 60_000
    )
    owner = OwnerRow(transactional_id=name, coordinator=1, clients=[name], said=name)
    row = page_row(topic=name, held_by=held, groups_said=name, owner=owner, strip=strip)
    error = ErrorRow(scope="broker", broker=2, topic=name, partition=1, error="X", detail=name)
    answer = Answer("runbook", "cluster", NOW, [row], [error], extra=EXTRA | {"context": name})
    change = JournalRow(
        id="j-20261123-083245-e434",
        state="done",
        kind="txn-abort",
        action="abort",
        context=name,
        cluster_id="cluster",
        scope=name,
        summary=name,
        started=NOW + 1_000,
        ended=NOW + 2_000,
        user=name,
        host=name,
        pid=7,
        argv=["eoctl", name],
        steps=1,
        steps_done=1,
        plan_sha256="0" * 64,
        undoes=None,
        undone_by=None,
    )
    event = JournalEventRow(
        id=change.id,
        at=NOW + 1_500,
        event="step-done",
        step=1,
        target=name,
        detail=name,
        saw=None,
        found=False,
    )
    finding = DoctorRow(
        rule="few-copies",
        subject=SubjectRow(kind="topic", name=name),
        state="finding",
        evidence=[EvidenceRow(code="held", text=name, data={})],
        harm=name,
        remedy=name,
        command=name,
        sources=[name],
        lacks=None,
    )
    given: dict[str, Any] = {
        "name": name,
        "made_at": NOW,
        "version": "1",
        "answer": answer,
        "looks": [(NOW - 5_000, name)],
        "changes": [Change(change, None, [event])],
        "errors": [error],
        "doctor": Answer("doctor", "cluster", NOW, [finding], extra={"rules": 20, "named": []}),
    }
    return Report(**given | more)


PLAIN = Parsed(page(report("orders")))


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_text_and_nothing_else(name: str) -> None:
    parsed = Parsed(page(report(name)))
    assert parsed.elements == PLAIN.elements  # no name made or closed an element, or an attribute
    assert visible(name) in parsed.text
    assert not parsed.open


def test_the_page_needs_nothing_from_elsewhere_and_runs_nothing() -> None:
    html = page(report("orders"))
    assert set(PLAIN.links) == {"#held-1"}
    assert "url(" not in html
    assert "@import" not in html
    assert not {"script", "link", "img", "iframe", "object"} & {name for name, _ in PLAIN.elements}
    assert not any(a.startswith("on") for _, names in PLAIN.elements for a in names)
    assert "default-src &#x27;none&#x27;" in html


def test_all_parts_are_there() -> None:
    for part in (
        "Timeline",
        "What was open",
        "Changes",
        "Not seen",
        "For the ticket",
        "such a log before and after",
        "txn abort orders:3 --pid 4001",
        "no coordinator lists producer id 4001",
        "its coordinator would abort it",
        "^ LSO 182736450",
        "Before the night (doctor)",
        "1 finding by 20 rules.",
    ):
        assert part in PLAIN.text, part


def test_without_anything() -> None:
    answer = Answer("runbook", None, NOW, [], extra=EXTRA | {"held_back": 0, "held_offsets": 0})
    text = Parsed(page(report("empty", answer=answer, looks=[], changes=[], doctor=None))).text
    assert "This bundle holds no settings: an older eoctl made it." in text
    assert "Nothing was held back" in text
    assert "Timeline" not in text
    assert Parsed(page(report("none", answer=None, looks=[], changes=[]))).text


def test_the_timeline_is_in_order_and_what_is_to_come_is_last() -> None:
    r = report("orders")
    assert r.answer is not None
    found = moments(r.answer.rows, r.looks, r.changes[0].events)  # type: ignore[arg-type]
    assert [m.at for m in found] == sorted(m.at for m in found)
    assert [(m.kind, m.at - NOW) for m in found if m.at >= NOW - 9_000] == [
        ("log", -9_000),
        ("look", -5_000),
        ("change", 1_500),
        ("ahead", 60_000),
        ("ahead", (6 * 24 + 2) * 3_600_000),
    ]
