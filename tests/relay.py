"""A TCP relay that can swallow one answer: what was sent arrives, the sender never hears of it."""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress


class Relay:
    """Passes bytes on. The first request that `cut` says yes to reaches the server, once `arrived`
    says so both connections are closed; nothing that the server said since gets through.

    stay_cut: every later connection is refused. cuts: how often it cut.
    """

    def __init__(
        self,
        port: int,
        cut: Callable[[bytes], bool],
        arrived: Callable[[], bool] = lambda: True,
        *,
        stay_cut: bool = False,
    ) -> None:
        self._target = port
        self._cut = cut
        self._arrived = arrived
        self._stay_cut = stay_cut
        self.cuts = 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        self._server.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                if self._stay_cut and self.cuts:
                    client.close()
                    continue
                threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        with closing(client), closing(socket.create_connection(("127.0.0.1", self._target))) as to:
            silent = threading.Event()

            def back() -> None:
                with suppress(OSError):
                    while (data := to.recv(65536)) and not silent.is_set():
                        client.sendall(data)
                    client.shutdown(socket.SHUT_RDWR)

            threading.Thread(target=back, daemon=True).start()
            with suppress(OSError):
                while data := client.recv(65536):
                    if self.cuts == 0 and self._cut(data):
                        self.cuts = 1
                        silent.set()
                        to.sendall(data)
                        end = time.monotonic() + 20
                        while not self._arrived() and time.monotonic() < end:
                            time.sleep(0.02)
                        return
                    to.sendall(data)
