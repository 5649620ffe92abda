"""Kafka's own tools, in one JVM for all tests of a process: starting one takes 1 s."""

import atexit
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from eoctl.lab import brokers
from eoctl.lab.brokers import STORAGE_TOOL, Runtime
from eoctl.lab.cluster import Lab
from eoctl.lab.jars import KAFKA, pyspark_jars

_OPEN = ("--add-opens", "java.base/java.lang=ALL-UNNAMED")
"""What a thread runs can be read by reflection."""

run_storage_tool = brokers.run_storage_tool
"""The lab's own, for the tests of the lab."""


def run_storage_tool_here(
    runtime: Runtime, args: Sequence[str], log: Path
) -> "subprocess.CompletedProcess[str]":
    """Instead of that, in all other tests: formats a lab in a tenth of the time."""
    if runtime.kafka_version != KAFKA:
        return run_storage_tool(runtime, args, log)
    return _jvm(runtime).run(STORAGE_TOOL, tuple(args))


def kafka_tool(lab: Lab, main_class: str, *args: str) -> "subprocess.CompletedProcess[str]":
    """Run one, such as org.apache.kafka.tools.TransactionsCommand: its status, stdout, stderr."""
    return _jvm(lab.runtime()).run(main_class, args)


def admin_clients(lab: Lab) -> int:
    """Return how many of Kafka's admin clients are open in the JVM of the tools."""
    return len(_jvm(lab.runtime()).admin_threads())


@cache
def _jvm(runtime: Runtime) -> "_Jvm":
    argv = runtime.argv("py4j.GatewayServer", "--die-on-broken-pipe", "0", flags=_OPEN)
    return _Jvm(argv)


class _Jvm:
    """A JVM with Kafka's classes that runs main methods, one after the other."""

    def __init__(self, argv: list[str]) -> None:
        from py4j.java_gateway import GatewayParameters, JavaGateway

        (py4j,) = pyspark_jars().glob("py4j-*.jar")
        argv[argv.index("-cp") + 1] += f":{py4j}"
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,  # whose end is the JVM's: also where this process is killed
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        atexit.register(self._close)
        assert self._process.stdout is not None
        port = int(self._process.stdout.readline())
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
        self._jvm: Any = self._gateway.jvm
        self._statuses = self._jvm.java.util.ArrayDeque()
        self._keep_from_exiting()

    def _keep_from_exiting(self) -> None:
        """Kafka's Exit.exit notes the status and throws, in place of ending the JVM.

        Written with method handles: no compiler comes with the Java of a lab.
        """
        lang = self._jvm.java.lang
        handles, proxies = lang.invoke.MethodHandles, lang.invoke.MethodHandleProxies
        of, named = lang.invoke.MethodType.methodType, lang.Class.forName
        whole, nothing = lang.Integer.TYPE, lang.Void.TYPE
        add = of(lang.Boolean.TYPE, named("java.lang.Object"))
        note = handles.publicLookup().bind(self._statuses, "add", add).asType(of(nothing, whole))
        leave = handles.throwException(nothing, named("java.lang.RuntimeException")).bindTo(
            lang.RuntimeException("the tool has called Exit")
        )
        leave = handles.foldArguments(self._taking(leave, 0, whole), note)
        leave = self._taking(leave, 1, named("java.lang.String"))  # (status, message)
        exits = getattr(self._jvm, "org.apache.kafka.common.utils.Exit")
        procedure = named("org.apache.kafka.common.utils.Exit$Procedure")
        exits.setExitProcedure(proxies.asInterfaceInstance(procedure, leave))
        exits.setHaltProcedure(proxies.asInterfaceInstance(procedure, leave))

    def _taking(self, handle: Any, at: int, argument: Any) -> Any:
        """The same method with one more argument, which it ignores."""
        more = self._array(self._jvm.java.lang.Class, argument)
        return self._jvm.java.lang.invoke.MethodHandles.dropArguments(handle, at, more)

    def _array(self, of: Any, *values: Any) -> Any:
        made = self._gateway.new_array(of, len(values))
        for at, value in enumerate(values):
            made[at] = value
        return made

    def run(self, main_class: str, args: tuple[str, ...]) -> "subprocess.CompletedProcess[str]":
        """Run a tool to its end. Raises what it ends by, other than Exit."""
        self._statuses.clear()
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder, name) for name in ("stdout", "stderr")]
            out, err = (self._jvm.java.io.PrintStream(str(file), "UTF-8") for file in files)
            self._jvm.java.lang.System.setOut(out)
            self._jvm.java.lang.System.setErr(err)
            try:
                getattr(self._jvm, main_class).main(self._array(self._jvm.String, *args))
            except Exception:  # of several kinds once pyspark has put its own reader into py4j
                if self._statuses.isEmpty():
                    raise
            finally:
                out.close()
                err.close()
                self._close_admin_clients()
            said = [file.read_text(encoding="utf-8") for file in files]
        status = self._statuses.poll() or 0
        return subprocess.CompletedProcess([main_class, *args], status, *said)

    def admin_threads(self) -> list[Any]:
        """The threads of open admin clients."""
        threads = self._jvm.java.lang.Thread.getAllStackTraces().keySet()
        return [t for t in threads if t.getName().startswith("kafka-admin-client-thread")]

    def _close_admin_clients(self) -> None:
        """Close the clients that a tool has left for the end of its JVM to close.

        TransactionsCommand does. Each would try to connect again to brokers that are gone, until
        the last test has run: 5 ms of processor time a second.
        """
        for thread in self.admin_threads():
            runs = self._runs(thread)
            if runs is not None:  # None: it has just ended
                client = self._read(runs.getClass(), "this$0", runs)
                client.close(self._jvm.java.time.Duration.ZERO)

    def _runs(self, thread: Any) -> Any:
        """The Runnable of a thread; since Java 19 it stands in the thread's holder."""
        of_thread = self._jvm.java.lang.Class.forName("java.lang.Thread")
        if any(field.getName() == "target" for field in of_thread.getDeclaredFields()):
            return self._read(of_thread, "target", thread)
        holder = self._read(of_thread, "holder", thread)
        return self._read(holder.getClass(), "task", holder)

    def _read(self, of: Any, name: str, instance: Any) -> Any:
        field = of.getDeclaredField(name)
        field.setAccessible(True)
        return field.get(instance)

    def _close(self) -> None:
        self._gateway.close()
        self._process.kill()
        self._process.communicate()
