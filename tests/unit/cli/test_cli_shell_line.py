"""Words of an unfinished bash line, and quoting what is put into it. The oracle is bash itself."""

import subprocess

import pytest

from eoctl.cli.shell_line import inserted, parse

HOSTILE = (
    "plain-id_0.1",
    "with space",
    "a:b=c@d;$(touch x)`y`",
    'it\'s "quoted" \\ back!',
    "esc\x1b[31m\nnewline\ttab",
    "bidi‮txt​",
    "日本語🦄é",
    "$HOME ~ * ? [a] {b,c} & | < > # ",
    " edges ",
    "-starts-with-dash",
)


def bash_words(line: str) -> list[bytes]:
    """What bash makes of the words of a line, nothing executed but printf."""
    done = subprocess.run(
        ["bash", "--norc", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True
    )
    return done.stdout.split(b"\0")[:-1]


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("opening", ["", "'", '"', "$'"])
def test_inserted_word_is_the_value_for_bash(value: str, opening: str) -> None:
    """From nothing typed but the opening quote: line + insertion + quote is exactly the value."""
    line = parse(f"eoctl txn describe {opening}")
    assert line.words == ("eoctl", "txn", "describe")
    assert (line.current, line.kept, line.quote) == ("", "", opening)
    word = inserted(line, value)
    if word is None:
        assert opening in ("'", '"')  # it cannot stand in this quote
        return
    closing = opening[-1:]
    assert bash_words(f"eoctl {opening}{word}{closing}") == [b"eoctl", value.encode()]
    assert not any(ord(character) < 32 for character in word)


@pytest.mark.parametrize("value", HOSTILE)
def test_only_plain_text_goes_into_an_open_quote(value: str) -> None:
    tame = value.isprintable()
    assert (inserted(parse("eoctl '"), value) is not None) == (tame and "'" not in value)
    assert inserted(parse("eoctl $'"), value) is not None


@pytest.mark.parametrize("value", ["orders:12", "a:b:c d", "x=y", "user@host;rm"])
@pytest.mark.parametrize("typed", range(1, 10))
def test_what_stands_before_a_break_is_kept(value: str, typed: int) -> None:
    """Readline replaces only what follows the last break: `:`, `=`, `@`, `;` ..."""
    prefix = value[:typed]
    if any(character in " ;" for character in prefix):
        return  # would have to be quoted by whoever types it
    line = parse(f"eoctl {prefix}")
    assert line.current == prefix
    word = inserted(line, value)
    assert word is not None
    assert bash_words(f"{line.kept}{word}") == [value.encode()]
    assert line.kept == prefix[: max(prefix.rfind(c) for c in ":=@;") + 1]


def test_breaks_are_bashs_own() -> None:
    without_colon = " \t\n\"'@><=;|&("
    assert parse("eoctl lso orders:1").kept == "orders:"
    assert parse("eoctl lso orders:1", without_colon).kept == ""
    assert parse("eoctl lso 'orders:1").kept == ""
    assert parse("eoctl lso a:'orders:1").kept == "a:"


@pytest.mark.parametrize(
    "line",
    [
        "eoctl lso orders",
        "eoctl 'a b' \"c d\" e\\ f",
        "eoctl $'x\\033y\\x41\\n' z",
        'eoctl $\'\\303\\251\' "a\\"b\\$c\\z"',
        "eoctl a'b'c\"d\"",
        "eoctl ''",
    ],
)
def test_words_are_bashs(line: str) -> None:
    found = parse(line + " ")
    assert [word.encode(errors="surrogateescape") for word in found.words] == bash_words(line)
    assert found.current == ""
    partial = parse(line)
    assert partial.quote == ""
    assert partial.current.encode(errors="surrogateescape") == bash_words(line)[-1]


def test_nothing_is_inserted_where_readline_misreads_the_quote() -> None:
    assert inserted(parse("eoctl $'a\\'b"), "a'bc") is None
    assert inserted(parse("eoctl $'a\\047b"), "a'bc") is not None
