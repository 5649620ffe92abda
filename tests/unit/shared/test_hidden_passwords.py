"""No part of a password in a usage error, wherever a URL is typed."""

import pytest

from recovery.errors import UsageError
from recovery.quoting import quoted
from recovery.restart.store_words import parse_store

CANARY = "c4n4ry-" * 12


@pytest.mark.parametrize(
    "word",
    [
        f"connect:http://u:{CANARY}@h",
        f"http://u:{CANARY}@h/app.toml",
        f"u:{CANARY}@h",
        f"{CANARY}@h",
        f"zookeeper:u:{CANARY}@h",
        f"sql:postgresql://u:{CANARY}@h",
        f"topic:u:{CANARY}@h",
        f"connect:u:{CANARY}@h.toml",
    ],
)
def test_a_store_in_one_word_is_not_echoed(word: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_store(word)
    assert "c4n4ry" not in caught.value.sentence


def test_a_url_in_any_error_shows_no_password() -> None:
    url = f"http://u:{CANARY}@h/x"
    assert "c4n4ry" not in UsageError("cannot be read", where=url).sentence
    assert "c4n4ry" not in quoted(url)
    assert "http://u:***@h/x" in quoted(url)
