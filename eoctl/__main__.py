"""`eoctl` and `python -m eoctl`."""


def _interrupt(number: int, frame: object) -> None:
    """SIGTERM (cron, systemd) ends a command as Ctrl-C does."""
    import signal

    signal.signal(number, signal.SIG_IGN)  # the way out is begun once
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell
        raise KeyboardInterrupt
    # asyncio ends its task for this one; an exception amid its own code it would only log
    signal.raise_signal(signal.SIGINT)


def main() -> None:
    """Run the command line; the process ends with its exit status."""
    import gc
    import os
    import signal
    import sys

    if sys.platform == "win32":
        print("eoctl: Windows is not supported; run it in WSL 2 (Linux)", file=sys.stderr)
        raise SystemExit(2)
    signal.signal(signal.SIGTERM, _interrupt)
    # what is imported and read stays: to look through it for garbage every 700 objects takes a
    # tenth of a short command's time, and one look while 10,000 partitions are read 11 ms
    gc.set_threshold(200_000, 20, 50)
    # pydantic would read the metadata of every installed package, to look for plugins
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")
    # numpy's BLAS, which nothing here uses, would start a thread per core in each process
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # what is written may hold keys, values and names: nobody else reads it (as stores.private)
    os.umask(0o077)
    from eoctl.cli.main import run

    status = run()
    # what is done is done: Python, ending, gives the signal its default meaning, and status 143
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # the process ends: Python would first look through all that is there for garbage, several times
    gc.freeze()
    raise SystemExit(status)


if __name__ == "__main__":
    main()
