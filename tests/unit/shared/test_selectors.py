"""TOPIC[:P] as typed. Oracle for partitions: the set of numbers written out."""

import fnmatch
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.errors import UsageError
from recovery.facts import TopicPartition
from recovery.selectors import Selector, missing, parse_selector, regex_selector, unmatched

LEGAL = st.text("abcXYZ019._-", min_size=1, max_size=249).filter(lambda t: t not in (".", ".."))


def chosen(selector: Selector, topic: str, below: int = 20) -> list[int]:
    return [partition for partition in range(below) if selector.matches(topic, partition)]


@pytest.mark.parametrize(
    ("text", "topic", "partitions"),
    [
        ("orders", "orders", [*range(20)]),
        ("orders:3", "orders", [3]),
        ("orders:0,2,5-9", "orders", [0, 2, 5, 6, 7, 8, 9]),
        ("orders:9,0,5-7,6-8", "orders", [0, 5, 6, 7, 8, 9]),
        ("orders:007", "orders", [7]),
        ("a.b_c-d:0", "a.b_c-d", [0]),
        ("__transaction_state:49", "__transaction_state", []),
        ("3", "3", [*range(20)]),
        ("3:3", "3", [3]),
        ("-", "-", [*range(20)]),
        ("x" * 249 + ":1", "x" * 249, [1]),
        ("orders:0-2147483647", "orders", [*range(20)]),
    ],
)
def test_a_name(text: str, topic: str, partitions: list[int]) -> None:
    selector = parse_selector(text)
    assert selector.literal is not None
    assert selector.literal == topic
    assert chosen(selector, topic) == partitions
    assert not selector.matches_topic(topic + "x")
    assert not selector.matches_topic("x" + topic)
    assert not selector.matches_topic(topic + "\n")


def test_a_dot_is_no_wildcard() -> None:
    assert not parse_selector("a.b").matches("aXb", 0)
    assert not parse_selector("Orders").matches("orders", 0)


@pytest.mark.parametrize(
    ("glob", "yes", "no"),
    [
        ("orders-*", ["orders-", "orders-eu"], ["orders", "my-orders-eu", "ORDERS-eu"]),
        ("*", ["a", "a.b", "__consumer_offsets"], []),
        ("a?c", ["abc", "a.c"], ["ac", "abbc"]),
        ("t[0-3]", ["t0", "t3"], ["t4", "t", "t[0-3]"]),
        ("t[!0-3]", ["t4", "tx"], ["t0"]),
        ("a.*", ["a.b"], ["aXb"]),
    ],
)
def test_a_glob(glob: str, yes: list[str], no: list[str]) -> None:
    selector = parse_selector(glob)
    assert selector.literal is None
    assert [topic for topic in yes + no if selector.matches(topic, 0)] == yes
    assert chosen(parse_selector(f"{glob}:2,4"), yes[0]) == [2, 4]


@given(st.text("ab*?[]-!", min_size=1, max_size=12), LEGAL)
def test_a_glob_matches_as_fnmatch_does(glob: str, topic: str) -> None:
    try:
        selector = parse_selector(glob)
    except UsageError:
        return
    assert selector.matches(topic, 0) == fnmatch.fnmatchcase(topic, glob)


def test_partitions_from_their_own_option() -> None:
    assert chosen(parse_selector("orders", partitions="0, 2-3"), "orders") == [0, 2, 3]
    with pytest.raises(UsageError, match="both name partitions"):
        parse_selector("orders:1", partitions="2")
    with pytest.raises(UsageError, match="does not name partitions"):
        parse_selector("orders", partitions="")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no topic is named; write TOPIC, TOPIC:3"),
        (":3", "no topic is named"),
        (".", "Kafka does not allow a topic named ."),
        ("..:3", "Kafka does not allow a topic named .."),
        ("x" * 250, r"is longer \(250\) than the 249 characters"),
        ("orders:", "does not allow ':' in it; partitions are written TOPIC:3"),
        ("orders:a", "does not allow ':' in it"),
        ("orders:3:x", "does not allow ':' in it"),
        ("a:1:2", "does not allow ':' in it"),
        ("orders:٣", "does not allow ':' in it"),
        ("orders eu", "does not allow ' ' in it; allowed are letters, digits, dot"),
        ("orders,payments", "does not allow ',' in it"),
        ("café", "does not allow 'é' in it"),
        ("orders\n", "in it"),
        ("orders\x1b[2J", "in it"),
        ("\ud800", "in it"),
        ("orders:-1", "'-1' does not name partitions; write 3 or 0,2,5-9"),
        ("orders:-", "does not name partitions"),
        ("orders:,", "does not name partitions"),
        ("orders:1,", "does not name partitions"),
        ("orders:1-2-3", "does not name partitions"),
        ("orders:9-5", "9-5 run backwards"),
        ("orders:2147483648", "partition 2147483648 is above 2147483647"),
        ("orders:" + "9" * 400, "does not name partitions"),
        ("orders[", "is not closed"),
        ("orders-*\x1b", "in it"),
    ],
)
def test_no_selector(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        parse_selector(text, where="TOPIC")
    assert caught.value.sentence.startswith("TOPIC: ")
    assert caught.value.sentence.isprintable()
    assert len(caught.value.sentence) < 250


def test_a_regex_matches_whole_names() -> None:
    selector = regex_selector("orders|pay.*")
    assert selector.literal is None
    assert [t for t in ("orders", "orders-eu", "payments", "xpay") if selector.matches(t, 7)] == [
        "orders",
        "payments",
    ]


@pytest.mark.parametrize("expression", ["[", "*a", "(", "(?P<x>a)(?P<x>b)", "a{99999999999999}"])
def test_no_regex(expression: str) -> None:
    with pytest.raises(UsageError, match=r"--regex: .* is not a regular expression: .*'orders-"):
        regex_selector(expression)


def test_a_regex_that_python_warns_of_stays_silent() -> None:
    assert regex_selector("[[a]").matches("[", 0)


@given(LEGAL, st.lists(st.tuples(st.integers(0, 99), st.integers(0, 9)), min_size=1, max_size=8))
def test_any_list_of_ranges(topic: str, ranges: list[tuple[int, int]]) -> None:
    text = ",".join(f"{low}-{low + more}" if more else f"{low}" for low, more in ranges)
    wanted = {low + i for low, more in ranges for i in range(more + 1)}
    selector = parse_selector(f"{topic}:{text}")
    assert set(chosen(selector, topic, 120)) == wanted
    assert selector.partitions is not None
    # As few as can be: between two of them at least one partition is left out.
    pairs = zip(selector.partitions, selector.partitions[1:], strict=False)
    assert all(high + 1 < low for (_, high), (low, _) in pairs)


@given(st.text())
def test_any_text_is_a_selector_or_a_usage_error(text: str) -> None:
    for parse in (parse_selector, regex_selector):
        sentence = ""
        try:
            parse(text).matches("orders", 0)
        except UsageError as error:
            sentence = error.sentence
        assert sentence.isprintable()


@given(st.text(min_size=1, max_size=260))
def test_kafkas_rules_for_names(topic: str) -> None:
    # org.apache.kafka.common.internals.Topic.validate, as one expression
    legal = re.fullmatch(r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}", topic, re.ASCII) is not None
    try:
        selector = parse_selector(topic)
    except UsageError:
        assert not legal
    else:
        assert legal == (selector.literal == topic)


def test_what_is_named_and_missing() -> None:
    selectors = [parse_selector(t) for t in ("gone", "orders:1,5-9", "one:1", "no-*", "orders:0")]
    assert missing(selectors, {"orders": 6, "one": 1}) == [
        "topic gone does not exist",
        "orders:6-9 does not exist; the topic has partitions 0-5",
        "one:1 does not exist; the topic has only partition 0",
    ]


def test_only_patterns_that_match_nothing_are_unmatched() -> None:
    chosen = [parse_selector(s) for s in ("a*", "b*", "a*:1", "a*:0,2", "gone")]
    assert unmatched(chosen, [TopicPartition("ab", 0), TopicPartition("ab", 2)]) == (
        "no partition matches 'b*'",
        "no partition matches 'a*:1'",
    )
    assert unmatched([], []) == ()
