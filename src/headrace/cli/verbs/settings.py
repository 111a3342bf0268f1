"""`headrace settings`."""

from __future__ import annotations

import argparse

from headrace.cli import output
from headrace.cli.flags import json_flag as flags

__all__ = ["flags", "run"]


def run(options: argparse.Namespace) -> int:
    print(output.as_json(output.settings_rows()) if options.json else output.settings())
    return 0
