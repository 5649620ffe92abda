"""Make text from a cluster safe to print: others wrote its names, ids, keys and error messages.

A transactional id may hold ESC, newlines, bidi controls or invisible characters. Printed raw it
could recolour the terminal, fake a row or hide half of itself. `visible` escapes all of that. `[`
remains: code that prints through Rich or Textual must use Text, not markup.
"""

import re
import unicodedata

# Default_Ignorable_Code_Point and other blank characters that Python calls printable: variation
# selectors, the grapheme joiner, Hangul and Khmer fillers, the Braille blank.
_IGNORABLE = (  # compiled when first needed: names are nearly always ASCII
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)
_READS_AS_ESCAPE = r"\\(?:[\\nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})"
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t", "\\": r"\\"}
_EXTRA_BLANK = re.compile(r"^ | $|(?<= ) ")


def escaped(character: str) -> str:
    r"""Return one character as `\n`, `\r`, `\t`, `\\`, `\xhh`, `\uhhhh` or `\Uhhhhhhhh`."""
    code = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def hidden(text: str) -> list[bool]:
    """Return True for each character that must be escaped to be visible and harmless.

    True for controls, format characters (bidi, zero width, BOM), surrogates, private and unassigned
    ones, every blank but the plain space (all of these: `str.isprintable`, Unicode of the running
    Python), the default-ignorable ones, and marks without a base letter.
    """
    if text.isascii() and text.isprintable():
        return [False] * len(text)
    flags = []
    base = False
    for character in text:
        flag = not character.isprintable() or bool(re.match(_IGNORABLE, character))
        if not flag and character > "\x7f" and unicodedata.category(character)[0] == "M":
            flag = not base
        else:
            base = not flag and character != " "
        flags.append(flag)
    return flags


def visible(text: str, *, spaces: bool = False, ascii_only: bool = False) -> str:
    r"""Return the text on one line, in printable characters, each `hidden` one escaped (`\x1b`).

    Two texts never look alike: text with nothing to escape and nothing that reads like one of our
    escapes is unchanged (`DOMAIN\user`); in any other text every backslash is doubled. spaces: a
    blank at an end, or after another, becomes `\x20`, so that a name cannot fake a column of a
    table. ascii_only: for output whose encoding is not UTF-8.
    """
    tame = text.isascii() and text.isprintable() and "\\" not in text
    if tame and not (spaces and _EXTRA_BLANK.search(text)):
        return text  # nearly always the case, and quick
    flags = hidden(text)
    if ascii_only:
        flags = [flag or character > "\x7f" for flag, character in zip(flags, text, strict=True)]
    if spaces:
        for blank in _EXTRA_BLANK.finditer(text):
            flags[blank.start()] = True
    if not any(flags) and not re.search(_READS_AS_ESCAPE, text):
        return text
    return "".join(
        escaped(character) if flag or character == "\\" else character
        for flag, character in zip(flags, text, strict=True)
    )


def readable(data: bytes) -> str:
    """Return a record's key or value for people: its text if that is UTF-8 without anything to
    escape, else `0x` and hexadecimal digits. JSON has the exact form, in base64."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
    return f"0x{data.hex()}" if any(hidden(text)) else text
