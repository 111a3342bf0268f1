"""The command line: verbs and flags only. What they do is in `workflows/`."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

from headrace import __version__
from headrace.cli.verbs import VERBS
from headrace.errors import HeadraceError, StorageError, UsageError


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one verb; the exit code. Errors are one sentence on standard error."""
    try:
        try:
            return _run(arguments)
        finally:
            print(end="", flush=True)  # a reader that has gone shows here, not while Python shuts down
    except HeadraceError as problem:
        print(f"headrace: {problem}", file=sys.stderr)
        return problem.exit_code
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except (
        OSError
    ) as problem:  # what is printed does not arrive: a reader that has gone, a full disk, a closed terminal
        if sys.stdout is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(problem, BrokenPipeError):
            return 128 + signal.SIGPIPE
        where = problem.filename or "standard output"
        print(f"headrace: {where}: {problem.strerror or problem}", file=sys.stderr)
        return StorageError.exit_code


def _run(arguments: Sequence[str] | None) -> int:
    options = build_parser().parse_args(arguments)
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr
    )
    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # it warns of whatever a client sends
    warnings.filterwarnings("ignore", module="PIL")  # and so does Pillow
    return VERBS[options.verb].run(options)


class _Parser(argparse.ArgumentParser):
    """Wrong flags end with the exit code of every usage error. Flags are written out: a shortened one may mean another some day."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        self.exit(UsageError.exit_code, f"headrace: {message}; see `{self.prog} --help`\n")


def build_parser() -> argparse.ArgumentParser:
    """All verbs and flags, for `--help` and for the reference page."""
    parser = _Parser(prog="headrace", description="Keeps the accelerator of an image model fed.")
    parser.add_argument("--version", action="version", version=f"headrace {__version__}")
    verbs = parser.add_subparsers(title="verbs", required=True, metavar="VERB", dest="verb")
    for name, verb in VERBS.items():
        verb.flags(verbs.add_parser(name, help=verb.help, description=verb.describe))
    return parser


if __name__ == "__main__":
    sys.exit(main())
