"""`python -m headrace.lab.assets`: make the cache complete, or see that it is."""

from __future__ import annotations

import argparse
import sys
import time

from headrace.errors import HeadraceError
from headrace.lab.assets.fetch import fetch
from headrace.lab.assets.files import cache_root
from headrace.lab.assets.manifest import Manifest
from headrace.units import format_bytes


def main(arguments: list[str] | None = None) -> int:
    """The exit code: 0, or the error's own, with one line that says what to do."""
    parser = argparse.ArgumentParser("python -m headrace.lab.assets", description=__doc__)
    parser.add_argument(
        "--deep", action="store_true", help="compare every checksum, not only sizes and times"
    )
    parser.add_argument(
        "--retry", action="store_true", help="ask again for Debian packages that were skipped"
    )
    parser.add_argument("--where", action="store_true", help="print the folder and do nothing")
    chosen = parser.parse_args(arguments)
    if chosen.where:
        print(cache_root())
        return 0
    started = time.monotonic()
    try:
        root = fetch(
            lambda line: print(line + "\n", end="", flush=True), deep=chosen.deep, retry=chosen.retry
        )
    except HeadraceError as error:
        print(f"assets: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("assets: interrupted; run again to resume", file=sys.stderr)
        return 130
    files = Manifest.read(root).files().values()
    size = format_bytes(sum(record.size for record in files))
    print(f"assets complete: {len(files)} files, {size} in {root} ({time.monotonic() - started:.1f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
