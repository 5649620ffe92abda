"""`tui --web` without a browser: what a browser may type, and who may come in."""

from collections.abc import Mapping
from typing import Any

import pytest
from textual import events
from textual.message import Message

from recovery.errors import EoctlError
from tui.web.door import Door, listening
from tui.web.server import message_of
from tui.web.terminal import PageDriver


class Typed(PageDriver):
    """A browser's terminal that keeps what it was told."""

    def __init__(self) -> None:
        self.said: list[Message] = []

    def process_message(self, message: Message) -> None:
        self.said.append(message)


KEYS = {
    "a size": ("\x1b[48;20000;20000;200000;200000t", []),
    "a size in a paste": ("\x1b[200~\x1b[48;20000;20000;200000;200000t", []),
    "a focus": ("\x1b[I\x1b[O", []),
    "what a terminal supports": ("\x1b[?2026;1$y\x1b[?2048;1$y", []),
    "a number that no key has": ("\x1b[99999999999;1u", []),
    "nothing": ("", []),
    "a paste without its end": ("\x1b[200~abc", []),
    "esc": ("\x1b", ["escape"]),
    "a key": ("\x1b[A", ["up"]),
}


@pytest.mark.parametrize("name", KEYS)
def test_only_keys_the_mouse_and_pastes_are_taken(name: str) -> None:
    text, keys = KEYS[name]
    terminal = Typed()
    terminal.typed(text)
    assert [e.key for e in terminal.said if isinstance(e, events.Key)] == keys
    assert len(terminal.said) == len(keys)


def test_nothing_is_kept_until_the_next_message() -> None:
    terminal = Typed()
    for text in ("\x1b[200~" + "x" * 9000, "\x1b[20", "q", "\x1b[<0;5;6M", "\x1b[200~a b\x1b[201~"):
        terminal.said.clear()
        terminal.typed(text)
        said = [type(e).__name__ for e in terminal.said]
        if text == "q":
            assert said == ["Key"], "what came before is no part of it"
    assert said == ["Paste"]


@pytest.mark.parametrize("data", ["[" * 16000, '{"keys":' * 2000, b"\xff", "9" * 5000])
def test_what_is_no_message_is_none(data: str | bytes) -> None:
    assert message_of(data) == {}


def given(**options: str) -> Mapping[str, str | None]:
    return {**dict.fromkeys(("listen", "certificate", "key", "proxy", "url")), **options}


TLS = {"certificate": "c", "key": "k"}
REFUSED: Mapping[str, tuple[Mapping[str, str], str]] = {
    "http of another machine": ({"url": "http://dash.example"}, "others could read along"),
    "https that nobody does": ({"url": "https://dash.example"}, "others could read along"),
    "another machine's http with TLS": (
        {**TLS, "url": "http://dash.example"},
        "with a certificate it is https",
    ),
    "http with TLS": ({**TLS, "url": "http://127.0.0.1:8080"}, "with a certificate it is https"),
    "a name as the proxy": ({"proxy": "proxy.example", "url": "https://x"}, "is no IP address"),
    **{
        url: ({**TLS, "url": url}, "is no SCHEME://NAME")
        for url in (
            *("https://[bad", "https://x/?q", "https://x/?", "https://x/#f", "https://u:p@x/"),
            *("https://x:99999", "https://x:y", "https://", "ftp://x", "x", "", "https://x y"),
            *("https://x/y", "https://\u202ex", "https://x\\@y", "https://x%2fy"),
        )
    },
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_together_is_refused_with_a_sentence(name: str) -> None:
    options, says = REFUSED[name]
    with pytest.raises(EoctlError, match=says) as refused:
        listening(given(**options))
    assert len(refused.value.sentence.splitlines()) == 1


ACCEPTED: Mapping[str, tuple[Mapping[str, str], str]] = {
    "this machine": ({}, "http://127.0.0.1:8080"),
    "a tunnel": ({"url": "http://localhost:9000/"}, "http://localhost:9000"),
    "a proxy": ({"proxy": "::ffff:10.0.0.5", "url": "https://D.example:443/"}, "https://d.example"),
    "TLS": ({**TLS, "listen": "10.0.0.5:8443"}, "https://10.0.0.5:8443"),
    "TLS of a name": (
        {**TLS, "listen": "0.0.0.0:443", "url": "https://d.example"},
        "https://d.example",
    ),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_the_address_that_people_open(name: str) -> None:
    options, begins = ACCEPTED[name]
    where = listening(given(**options))
    door = where.door(where.port)
    assert where.address(door, where.port) == f"{begins}/{door.token}/"
    assert begins in door.origins


def test_an_odd_path_is_refused_and_a_mapped_proxy_is_let_in() -> None:
    door = Door(frozenset({"https://x"}), "token", "10.0.0.5")
    for peer in ("10.0.0.5", "::ffff:10.0.0.5"):
        assert door.refusal(peer, "/token/", ["x"], []) is None
    refused: Any = door.refusal("10.0.0.5", "/\udc80/", ["x"], [])
    assert refused.status == 404
    refused = door.refusal("", "/token/", ["x"], [])
    assert refused.status == 403
