"""Which engine a command line asks for, and what does not go together."""

import pytest

from eoctl.cli.spark_options import SparkOptions
from recovery.errors import UsageError


def test_an_option_of_spark_makes_spark_of_auto() -> None:
    assert SparkOptions(remote="sc://h:1").engine()[0] == "spark"
    assert SparkOptions(remote="sc://h:1", asked_engine="spark").engine()[0] == "spark"
    assert SparkOptions(asked_engine="local").engine() == ("local", None)


def test_auto_does_without_spark_but_nobody_who_asks_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert SparkOptions().engine() == ("auto", None)
    for options in (SparkOptions(asked_engine="spark"), SparkOptions(master="local[1]")):
        with pytest.raises(UsageError, match="JAVA_HOME is /nowhere"):
            options.engine()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (SparkOptions(asked_engine="sparc"), "no 'sparc'; one of auto, local, spark"),
        (SparkOptions(asked_engine="local", conf=["spark.a=b"]), "takes no --master"),
        (SparkOptions(master="local", remote="sc://h:1"), "not both"),
    ],
)
def test_what_does_not_go_together_is_refused(options: SparkOptions, sentence: str) -> None:
    with pytest.raises(UsageError) as refusal:
        options.engine()
    assert sentence in refusal.value.sentence
