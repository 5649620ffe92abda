"""`eoctl` and `python -m eoctl`."""


def main() -> None:
    """Run the command line; the process ends with its exit status."""
    import gc
    import os

    # what is imported and read stays: to look through it for garbage every 700 objects takes a
    # tenth of a short command's time
    gc.set_threshold(50_000, 20, 50)
    # numpy's BLAS, which nothing here uses, would start a thread per core in each process
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from eoctl.cli.main import run

    raise SystemExit(run())


if __name__ == "__main__":
    main()
