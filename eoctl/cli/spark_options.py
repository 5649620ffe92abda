"""Commands that can run on Spark share these options, and the way they show progress."""

import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from eoctl.cli.options import Ranked, option
from eoctl.cli.progress import ChangingLine
from recovery.change.job_rows import bar
from recovery.errors import UsageError
from recovery.quoting import quoted

if TYPE_CHECKING:
    from eoctl.operations.jobs.spark_launch import Spark


Master = Annotated[
    str | None,
    option("--master URL", "local[N], spark://HOST:7077, yarn, k8s://... [local[cores]]"),
]
Conf = Annotated[list[str], option("--conf K=V", "a conf of Spark")]


@dataclass(frozen=True)
class SparkOptions(Ranked):
    """The options that say which engine does the work, and where Spark is."""

    panel: ClassVar[str] = "Spark"
    asked_engine: Annotated[str, option("--engine auto|local|spark", "where it runs")] = "auto"
    master: Master = None
    remote: Annotated[str | None, option("--remote sc://HOST", "Spark Connect")] = None
    conf: Conf = field(default_factory=list)
    env_file: Annotated[
        Path | None,
        option("--env-file FILE", "NAME=VALUE lines for the job's environment"),
    ] = None

    def engine(self) -> "tuple[str, Spark | None]":
        """auto, local or spark, and the Spark that may be used: None where it may not or where
        there is none. An option of Spark makes spark of auto.

        Raises UsageError for what does not go together, and where spark is asked for and is not
        installed.
        """
        from eoctl.operations.jobs.spark_launch import ENGINES, check_installed, read_options

        name = self.asked_engine
        if name not in ENGINES:
            raise UsageError(
                f"no {quoted(name)}", where="--engine", remedy=f"one of {', '.join(ENGINES)}"
            )
        given = bool(self.master or self.remote or self.conf or self.env_file)
        if name == "local":
            if given:
                raise UsageError(
                    "takes no --master, --remote, --conf or --env-file", where="--engine local"
                )
            return name, None
        spark = read_options(self.master, self.remote, self.conf, self.env_file)
        try:
            check_installed(spark)
        except UsageError:
            if given or name == "spark":
                raise
            return name, None
        return "spark" if given else name, spark


class JobProgress(ChangingLine):
    """Shows a job's reports on stderr: a bar on a terminal, else a JSON line for each."""

    def __call__(self, report: Mapping[str, Any]) -> None:
        if self.on_terminal:
            self.write_over(bar(report)[: shutil.get_terminal_size().columns - 1])
        else:
            sys.stderr.write(json.dumps(dict(report)) + "\n")
            sys.stderr.flush()
