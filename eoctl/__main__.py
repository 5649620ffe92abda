"""`eoctl` and `python -m eoctl`."""


def main() -> None:
    """Run the command line; the process ends with its exit status."""
    from eoctl.cli.main import run

    raise SystemExit(run())


if __name__ == "__main__":
    main()
