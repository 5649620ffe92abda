"""`eoctl` and `python -m eoctl`."""


def main() -> None:
    """Run the command line; the process ends with its exit status."""
    import gc

    # what is imported and read stays: to look through it for garbage every 700 objects takes a
    # tenth of a short command's time
    gc.set_threshold(50_000, 20, 50)
    from eoctl.cli.main import run

    raise SystemExit(run())


if __name__ == "__main__":
    main()
