"""Hostile text: nothing of it reaches the terminal, and no two texts look the same."""

import re
import sys
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from eoctl.render.sanitise import hidden, readable, visible
from eoctl.render.width import cells, cut_end, cut_middle

ODD = "\\nrtxuU0e1b a\x1b\n\t\r\x00\x7f\x80\x9b\xa0\xad\u034f\u0301\u061c\u115f\u200b\u200d\u202e"
MORE = "\u2028\u2029\u2066\u2800\u3000\u3164\ud800\udcff\ue000\ufe0f\ufeff\uffff\U000e0041é漢😀"
TEXT = st.text(st.sampled_from(ODD + MORE) | st.characters())
NAMES = {"\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
ESCAPE = re.compile(r"\\([\\nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})")


def undone(shown: str) -> str:
    """The documented way back: a text with anything that reads as an escape is all escaped."""
    return ESCAPE.sub(lambda m: NAMES.get(m[1]) or chr(int(m[1][1:], 16)), shown)


@given(TEXT, st.booleans(), st.booleans())
@example(r"DOMAIN\user", False, False)
@example(r"DOMAIN\new\\x1b", False, False)
@example("\x1b\\x1b", False, False)
def test_what_is_shown_is_harmless_and_can_be_undone(
    text: str, spaces: bool, ascii_only: bool
) -> None:
    shown = visible(text, spaces=spaces, ascii_only=ascii_only)
    assert undone(shown) == text
    assert all(c == " " or unicodedata.category(c)[0] not in "CZ" for c in shown)
    assert shown.isascii() or not ascii_only
    if spaces:
        assert "  " not in shown
        assert shown == shown.strip(" ")
    if shown:
        assert unicodedata.category(shown[0])[0] != "M"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("orders-enricher-0_3", "orders-enricher-0_3"),
        ("", ""),
        ("a b", "a b"),
        ("[/x]", "[/x]"),
        ("Grüße 漢字 😀", "Grüße 漢字 😀"),
        ("e\u0301", "e\u0301"),
        ("\u0301e", r"\u0301e"),
        (" \u0301", r" \u0301"),
        ("\x1b[31m", r"\x1b[31m"),
        (r"\x1b[31m", r"\\x1b[31m"),
        (r"DOMAIN\user", r"DOMAIN\user"),
        ("DOMAIN\\user\n", r"DOMAIN\\user\n"),
        (r"C:\new", r"C:\\new"),
        ("a\tb\r\n", r"a\tb\r\n"),
        ("\x00\x7f\x9b", r"\x00\x7f\x9b"),
        ("\u202eabc\u2066\u200e\u200f\u061c", r"\u202eabc\u2066\u200e\u200f\u061c"),
        ("a\u200bb\ufeff", r"a\u200bb\ufeff"),
        ("\u2028\u2029", r"\u2028\u2029"),
        ("\ud83d", r"\ud83d"),
        ("\u00a0\u3000", r"\xa0\u3000"),
        ("\u3164\u2800\ufe0f", r"\u3164\u2800\ufe0f"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_visible(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_every_character_that_unicode_calls_ignorable_is_escaped() -> None:
    # DerivedCoreProperties.txt, Default_Ignorable_Code_Point, Unicode 15
    ranges = (
        "AD 34F 61C 115F-1160 17B4-17B5 180B-180F 200B-200F 202A-202E 2060-206F 3164 FE00-FE0F "
        "FEFF FFA0 FFF0-FFF8 1BCA0-1BCA3 1D173-1D17A E0000-E0FFF"
    )
    for one in ranges.split():
        first, _, last = one.partition("-")
        for code in range(int(first, 16), int(last or first, 16) + 1):
            assert hidden("a" + chr(code)) == [False, True], hex(code)


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"order-17", "order-17"),
        ("Grüße".encode(), "Grüße"),
        (b"", ""),
        (b"\x00\x00\x04\xd2", "0x000004d2"),
        (b"a\n", "0x610a"),
        (b"\x1b[2J", "0x1b5b324a"),
        (b"\xff\xfe", "0xfffe"),
        ("\u202e".encode(), "0xe280ae"),
        (b"\xed\xa0\x80", "0xeda080"),
    ],
)
def test_readable(data: bytes, shown: str) -> None:
    assert readable(data) == shown


@given(st.binary())
def test_any_key_is_readable(data: bytes) -> None:
    assert visible(readable(data)).isprintable()


# --- width


@pytest.mark.parametrize(
    ("text", "width"),
    [("abc", 3), ("漢字", 4), ("e\u0301", 1), ("😀", 2), ("Ａ", 2), ("한국", 4), ("…", 1), ("", 0)],
)
def test_cells(text: str, width: int) -> None:
    assert cells(text) == width


def test_no_character_is_taken_for_narrower_than_rich_measures_it() -> None:
    for code in range(0x20, sys.maxunicode + 1):
        character = chr(code)
        if not hidden("a" + character)[1]:
            assert cells(character) >= cell_len("a" + character) - 1, hex(code)


@given(TEXT)
def test_nor_is_any_text(text: str) -> None:
    assert cells(visible(text)) >= cell_len(visible(text))


@given(TEXT, st.integers(0, 40), st.sampled_from(["…", ".."]))
@example("0000\u094d", 3, "…")
def test_a_cut_fits_and_keeps_both_ends(text: str, width: int, ellipsis: str) -> None:
    shown = visible(text)
    middle, end = cut_middle(shown, width, ellipsis), cut_end(shown, width, ellipsis)
    for cut in (middle, end):
        assert cells(cut) <= width
        assert cut.isprintable()
        if cells(shown) <= width:
            assert cut == shown
    if cells(shown) > width >= 2:
        assert any(
            shown.startswith(middle[:i]) and shown.endswith(middle[i + len(ellipsis) :])
            for i in range(len(middle))
            if middle[i:].startswith(ellipsis)
        )


@given(
    st.lists(st.from_regex(r"[a-z]{1,9}|[1-9][0-9]{0,18}", fullmatch=True), min_size=2, max_size=6),
    st.integers(2, 60),
)
def test_a_number_is_shown_whole_or_not_at_all(words: list[str], width: int) -> None:
    text = " ".join(words)
    for cut in (cut_middle(text, width), cut_end(text, width)):
        for found in re.finditer("[0-9]+", cut):
            assert found.group() in words
            beside = cut[max(found.start() - 1, 0)] + cut[min(found.end(), len(cut) - 1)]
            assert "…" not in beside


def test_names_are_cut_in_the_middle() -> None:
    assert cut_middle("orders-enricher-0_3", 11) == "order…r-0_3"
    assert cut_middle("漢字漢字漢字", 8) == "漢字…字"
    assert cut_middle("1234567890", 5) == "12…90"
    assert cut_end("no answer from broker 2", 12) == "no answer f…"
