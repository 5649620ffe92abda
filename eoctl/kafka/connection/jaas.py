"""Reads `sasl.jaas.config`, the line in which Java clients keep their credentials."""

import re
from dataclasses import dataclass, field

from recovery.errors import UsageError

KEY = "sasl.jaas.config"
FLAGS = ("required", "requisite", "sufficient", "optional")
_QUOTED = re.compile(r"""(["'])((?:[^\\\r\n]|\\.)*?)\1""")
_SKIP = re.compile(r"(?:\s|//[^\r\n]*|/\*.*?\*/)+", re.DOTALL)
_WORD = re.compile(r"""[^\s=;"'/]+""")
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True)
class LoginModule:
    """name: the Java class without its package. options: its key="value" pairs, with secrets."""

    name: str
    options: dict[str, str] = field(repr=False)


def parse_jaas(text: str) -> LoginModule:
    """The one login module of a `sasl.jaas.config` value.

    Grammar and escapes are those of org.apache.kafka.common.security.JaasConfig, which reads
    with java.io.StreamTokenizer; unquoted values may hold any character but blanks, `=`, `;`,
    `/` and quotes. Raises UsageError, which never quotes the text: it holds passwords.
    """
    tokens = _tokens(text)
    if len(tokens) < 2 or tokens[-1] != (";", False):
        raise _broken("it does not end with a semicolon")
    (name, _), (flag, _), rest = tokens[0], tokens[1], tokens[2:-1]
    if flag.lower() not in FLAGS:
        raise _broken("the word after the login module is not `required`")
    if (";", False) in rest:
        raise _broken("it names more than one login module")
    if len(rest) % 3:
        raise _broken('an option is not written name="value"')
    options: dict[str, str] = {}
    for at in range(0, len(rest), 3):
        (key, key_quoted), equals, (value, quoted) = rest[at : at + 3]
        if key_quoted or equals != ("=", False) or (value in "=;" and value and not quoted):
            raise _broken('an option is not written name="value"')
        options[key] = value
    return LoginModule(name.rpartition(".")[2], options)


def _tokens(text: str) -> list[tuple[str, bool]]:
    """(token, whether it was quoted) in their order."""
    tokens: list[tuple[str, bool]] = []
    at = 0
    while at < len(text):
        if skipped := _SKIP.match(text, at):
            at = skipped.end()
        elif text[at] in "=;":
            tokens.append((text[at], False))
            at += 1
        elif quoted := _QUOTED.match(text, at):
            tokens.append((_ESCAPE.sub(_unescape, quoted[2]), True))
            at = quoted.end()
        elif word := _WORD.match(text, at):
            tokens.append((word[0], False))
            at = word.end()
        else:
            raise _broken("a quotation mark is not closed or a character needs quoting")
    return tokens


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code, 8)) if code[0] in "01234567" else _LETTERS.get(code, code)


def _broken(why: str) -> UsageError:
    return UsageError(
        f"cannot be read: {why}",
        where=KEY,
        remedy='write `org.apache.kafka...LoginModule required username="..." password="...";`',
    )
