"""`eoctl tui --web`: who is let in, what one sees in a real browser, and what brokers are asked."""

import http.client
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from eoctl.lab.breaks import break_
from eoctl.lab.breaks.truth import GroundTruth
from eoctl.lab.cluster import Lab
from tests.kafka.command import FAST, environment, eoctl
from tests.kafka.relay import LIST_OFFSETS, Relay, relayed
from tests.relay import Relay as Wire
from tests.tools.browsing import Tab, browsing

Program = Callable[[str], str]
NOBODY = ("--bootstrap-server", "127.0.0.1:1")
ANY = ("--listen", "127.0.0.1:0")
SIZES = {(700, 480): "narrow", (1400, 900): "wide"}


@contextmanager
def serving(
    *words: str, env: Mapping[str, str] | None = None, folder: Path | None = None
) -> Iterator[str]:
    """The address of a dashboard that is served while the block runs."""
    command = (sys.executable, "-m", "eoctl", "tui", "--web", *words)
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=env or environment(), cwd=folder
    ) as server:
        try:
            assert server.stderr is not None
            said = server.stderr.readline()
            assert "http" in said, said
            yield said.split()[-1]
        finally:
            server.terminate()
            assert server.wait(15) == 130


@pytest.fixture(scope="module")
def orphan(lab1: Lab) -> GroundTruth:
    return break_(lab1, "orphan", hold=False)[0]


@pytest.fixture(scope="module")
def relay(lab1: Lab) -> Iterator[Relay]:
    with relayed(lab1) as between:
        yield between


@pytest.fixture(scope="module")
def address(
    orphan: GroundTruth, relay: Relay, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of a dashboard on a broker that is asked through the relay."""
    folder = tmp_path_factory.mktemp("web")
    env = environment(EOCTL_CONFIG=relay.config(folder))
    words = ("--context", "relayed", *ANY, *FAST, "--interval", "2s")
    with serving(*words, env=env, folder=folder) as found:
        yield found
    assert [p.name for p in folder.iterdir()] == ["relayed.toml"], "nothing is written on the host"


@pytest.fixture
def tab(program: Program, tmp_path: Path) -> Iterator[Tab]:
    with browsing(program("chromium"), tmp_path) as found:
        yield found


@contextmanager
def viewer(address: str, size: Sequence[int] = (120, 40)) -> Iterator[ClientConnection]:
    """A connection as the page makes it."""
    parts = urlsplit(address)
    origin = f"{parts.scheme}://{parts.netloc}"
    at = f"ws://{parts.netloc}{parts.path}ws"
    with connect(at, origin=Origin(origin), max_size=None) as found:
        found.send(json.dumps({"size": [*size]}))
        yield found


# -- who is let in ---------------------------------------------------------------------------

REFUSED: Mapping[str, tuple[tuple[str, ...], int, str]] = {
    "elsewhere without TLS": (("--listen", "0.0.0.0:0"), 4, "others could read along"),
    "elsewhere, all names": (
        ("--listen", "0.0.0.0:0", "--certificate", "c", "--key", "k"),
        2,
        "under which name",
    ),
    "a certificate without its key": (("--certificate", "c"), 2, "needs its key"),
    "a certificate that is none": (
        (*ANY, "--certificate", "none", "--key", "none"),
        2,
        "cannot be read",
    ),
    "a proxy without its address": (("--proxy", "127.0.0.1"), 2, "how do browsers reach"),
    "a proxy without TLS": (
        ("--listen", "0.0.0.0:0", "--proxy", "127.0.0.1", "--url", "http://x/"),
        2,
        "how do browsers reach",
    ),
    "an address with a path": (("--url", "https://x/y"), 2, "is no SCHEME://NAME"),
    "a port that is taken": (("--listen", "127.0.0.1:TAKEN"), 2, "cannot listen there"),
    "a recording": (("--replay", "x"), 2, "shows a live cluster"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_start_is_refused_with_one_sentence(name: str) -> None:
    words, status, says = REFUSED[name]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ran = eoctl("tui", "--web", *NOBODY, *(w.replace("TAKEN", port) for w in words))
    assert (ran.status, len(ran.stderr.splitlines())) == (status, 1)
    assert says in ran.stderr


def test_options_of_the_web_are_refused_without_it() -> None:
    assert eoctl("tui", *NOBODY, *ANY).status == 2


@pytest.fixture(scope="module")
def plain() -> Iterator[str]:
    """The address of a dashboard whose cluster does not answer."""
    with serving(*NOBODY, *ANY) as found:
        yield found


TURNED_AWAY: Mapping[str, tuple[str, Mapping[str, str], int]] = {
    "no token": ("/", {}, 404),
    "another token": ("/TOKENx/", {}, 404),
    "a token's beginning": ("/TOK/", {}, 404),
    "another file": ("/TOKEN/server.py", {}, 404),
    "a way out": ("/TOKEN/../server.py", {}, 404),
    "another Host": ("/TOKEN/", {"Host": "evil.example"}, 403),
    "another port in Host": ("/TOKEN/", {"Host": "127.0.0.1:1"}, 403),
    "another site's Origin": ("/TOKEN/", {"Origin": "https://evil.example"}, 403),
    "a connection without Origin": ("/TOKEN/ws", {"UPGRADE": ""}, 403),
    "a connection of another site": (
        "/TOKEN/ws",
        {"UPGRADE": "", "Origin": "https://evil.example"},
        403,
    ),
    "a connection of no site": ("/TOKEN/ws", {"UPGRADE": "", "Origin": "null"}, 403),
    "a connection without token": ("/ws", {"UPGRADE": "", "Origin": "SELF"}, 404),
}
UPGRADE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


def asked(address: str, path: str, headers: Mapping[str, str]) -> http.client.HTTPResponse:
    """The answer to one request. TOKEN, SELF, UPGRADE stand for what belongs to the address."""
    parts = urlsplit(address)
    token = parts.path.strip("/")
    path = path.replace("TOKENx", token[:-1] + "!").replace("TOKEN", token)
    path = path.replace("/TOK/", f"/{token[:8]}/")
    given = {k: v.replace("SELF", f"http://{parts.netloc}") for k, v in headers.items()}
    if given.pop("UPGRADE", None) is not None:
        given |= UPGRADE
    connection = http.client.HTTPConnection(parts.netloc, timeout=10)
    connection.putrequest("GET", path, skip_host="Host" in given)
    for name, value in given.items():
        connection.putheader(name, value)
    connection.endheaders()
    return connection.getresponse()


@pytest.mark.parametrize("name", TURNED_AWAY)
def test_who_is_turned_away(plain: str, name: str) -> None:
    path, headers, status = TURNED_AWAY[name]
    answer = asked(plain, path, headers)
    assert answer.status == status
    assert len(answer.read().splitlines()) == 1


def test_who_has_the_token_gets_the_page_and_a_connection(plain: str) -> None:
    answer = asked(plain, "/TOKEN/", {})
    assert answer.status == 200
    assert b"xterm.js" in answer.read()
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; connect-src 'self';")
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    with viewer(plain) as one:
        assert one.recv(20)
    tokens = {urlsplit(plain).path}
    with serving(*NOBODY, *ANY) as other:
        tokens.add(urlsplit(other).path)
    assert len(tokens) == 2, "a token is new with every start"
    assert all(len(token) > 40 for token in tokens)


def test_only_the_named_proxy_may_connect() -> None:
    for proxy, status in (("127.0.0.1", 200), ("127.0.0.2", 403)):
        words = ("--listen", "127.0.0.1:0", "--proxy", proxy, "--url", "https://dash.example/")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        with serving(*NOBODY, "--listen", f"127.0.0.1:{port}", *words[2:]) as address:
            assert address.startswith("https://dash.example/")
            at = f"http://127.0.0.1:{port}{urlsplit(address).path}"
            assert asked(at, "/TOKEN/", {"Host": "dash.example"}).status == status
            assert asked(at, "/TOKEN/", {}).status == 403, "its Host is the proxy's"


def test_at_most_eight_look(plain: str) -> None:
    with ExitStack() as stack:
        eight = [stack.enter_context(viewer(plain)) for _ in range(8)]
        for one in eight:
            assert one.recv(20)
        with pytest.raises(ConnectionClosed) as closed, viewer(plain) as ninth:
            ninth.recv(20)
        close = closed.value.rcvd
        assert close is not None
        assert (close.code, close.reason) == (1013, "8 people look already")
        eight[0].close()
        let_in(plain)
    let_in(plain)


def let_in(address: str) -> None:
    """Wait until there is room for one more."""
    for _ in range(20):
        try:
            with viewer(address) as next_one:
                assert next_one.recv(20)
                return
        except ConnectionClosed:
            time.sleep(0.5)
    pytest.fail("there is no room")


SIZE = json.dumps({"keys": "\x1b[48;20000;20000;200000;200000t"})
PASTE = json.dumps({"keys": "\x1b[200~" + "x" * 9000})
ODD = (
    "",
    "[" * 16000,
    SIZE,
    PASTE,
    "x",
    "[]",
    "{}",
    '{"size": "x"}',
    '{"size": [1, 1]}',
    '{"size": [100000, 9]}',
)


@pytest.mark.parametrize("first", ODD)
def test_odd_messages_disturb_nobody(plain: str, first: str) -> None:
    with viewer(plain) as other:
        with viewer(plain) as odd:
            odd.send(first)
            odd.send('{"keys": 5}')
            odd.send("\x1b[999;999;999M")
            assert odd.recv(20)
        other.send('{"keys": "?"}')
        assert other.recv(20)


# -- what one sees ---------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES, ids=SIZES.values())
def test_in_a_browser_with_keys_and_mouse(
    tab: Tab, address: str, orphan: GroundTruth, size: tuple[int, int]
) -> None:
    tab.sized(*size)
    tab.go(address)
    tab.shows("READ-ONLY", "orphan")
    columns, rows = tab.run("[term.cols, term.rows]")
    assert (columns < 100) == (size == (700, 480))
    assert len(tab.lines) == rows
    assert "7 Plans" not in tab.screen
    assert "x remedy" not in " ".join(tab.screen.split())
    tab.press("2")
    tab.shows("TOPIC:PARTITION")
    tab.press("/", *orphan.topic, "Enter")
    tab.shows(f"/{orphan.topic}")
    tab.press("Enter")
    tab.shows("readers see", f"LSO {orphan.start_offset}")
    tab.press("Escape", "?")
    tab.shows("Keys on")
    tab.press("Escape")
    tab.until(lambda: "Keys on" not in tab.screen and "1 Over" in tab.screen)
    tab.click("1 Over")
    tab.shows("Findings")


def test_a_resize_draws_the_screen_anew(tab: Tab, address: str) -> None:
    tab.sized(1400, 900)
    tab.go(address)
    tab.shows("READ-ONLY", "orphan")
    for width in (700, 1200):
        tab.sized(width, 600)
        tab.until(lambda: tab.run("term.cols") == tab.run("fit.proposeDimensions().cols"))
        columns = tab.run("term.cols")
        tab.until(lambda of=columns: max(map(len, tab.lines)) in (of, of - 1))  # type: ignore[misc]
        tab.shows("READ-ONLY")


def test_ctrl_s_downloads(tab: Tab, address: str, orphan: GroundTruth, tmp_path: Path) -> None:
    tab.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    tab.sized(1200, 800)
    tab.go(address)
    tab.shows("READ-ONLY", "orphan")
    tab.press("ctrl+s")
    tab.until(lambda: any(tmp_path.glob("eoctl-overview-*Z.csv")))
    [file] = tmp_path.glob("eoctl-overview-*Z.csv")
    assert f"{orphan.topic}:{orphan.partition}" in file.read_text(encoding="utf-8")


GONE = ("ctx other", "interval 1s", "plans", "jobs", "recover", "checkpoint /etc/passwd")
GONE_TOO = ("merge /etc/passwd", "change plan /etc/passwd", "job x")


def test_what_belongs_to_the_host_does_not_exist(tab: Tab, address: str) -> None:
    tab.sized(1200, 800)
    tab.go(address)
    tab.shows("READ-ONLY", "orphan")
    for command in (*GONE, *GONE_TOO):
        tab.press(":", *command, "Enter")
        tab.shows(f"no command '{command.split()[0]}'")
    tab.press("ctrl+z", "x", "v", "7", "8", "9", "+", "-")
    tab.press("?")
    tab.shows("Keys on Overview")  # so nothing else was opened
    assert "suspend" not in tab.screen
    tab.press("Escape")
    tab.shows("Findings")


def test_a_lost_connection_is_said_and_made_again(tab: Tab) -> None:
    lost = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    wire = Wire(port, lambda data: lost.is_set())
    words = ("--listen", f"127.0.0.1:{port}", "--url", f"http://127.0.0.1:{wire.port}")
    with serving(*NOBODY, *words) as address:
        tab.sized(1000, 600)
        tab.go(address)
        tab.shows("Findings")
        lost.set()
        tab.press("2")
        tab.until(lambda: "Connection lost" in tab.says)
        tab.until(lambda: not tab.says)
        tab.shows("Findings")
        tab.press("q")
        tab.until(lambda: "has ended" in tab.says)
        tab.press("a")
        tab.until(lambda: not tab.says)
        tab.shows("Findings")
    tab.until(lambda: "Connection lost" in tab.says)
    wire.close()


def test_a_page_of_a_server_that_ended_says_that_its_address_may_be_old(tab: Tab) -> None:
    with serving(*NOBODY, *ANY) as address:
        tab.go(address)
        tab.shows("Findings")
    tab.until(lambda: "it printed a new address" in tab.says)


# -- what brokers are asked ------------------------------------------------------------------


def test_one_feed_serves_all_and_only_looks(
    address: str, relay: Relay, orphan: GroundTruth
) -> None:
    def asked_in(seconds: float, viewers: int) -> int:
        with ExitStack() as stack:
            for number in range(viewers):
                one = stack.enter_context(viewer(address))
                threading.Thread(target=_drained, args=(one,), daemon=True).start()
                time.sleep(0.5)
                keys = f":why {orphan.topic}\r" if number % 2 else "2"
                one.send(json.dumps({"keys": keys}))
            time.sleep(4)
            before = relay.sent(LIST_OFFSETS).total()
            time.sleep(seconds)
            return relay.sent(LIST_OFFSETS).total() - before

    one, eight = asked_in(10, 1), asked_in(10, 8)
    assert one > 0
    assert eight <= 3 * one, "pages of why ask too, but once for all"
    time.sleep(6)
    before = len(relay.requests)
    time.sleep(4)
    assert len(relay.requests) == before, "nothing is asked while nobody looks"
    assert relay.changing == []


def _drained(one: ClientConnection) -> None:
    try:
        while True:
            one.recv()
    except ConnectionClosed:
        return
