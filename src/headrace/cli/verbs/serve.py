"""`headrace serve`."""

from __future__ import annotations

import argparse
import os
import sys
import threading

from headrace.cli import output
from headrace.cli.flags import model_flags, model_of, setting_flags, settings_of

EXIT_NOT_DRAINED = 75
"""sysexits' EX_TEMPFAIL: some requests were cut off."""


def flags(verb: argparse.ArgumentParser) -> None:
    model_flags(verb)
    setting_flags(verb)


def run(options: argparse.Namespace) -> int:
    from headrace.workflows.serve import serve

    settings = settings_of(options)
    drained = serve(
        model_of(options, settings),
        options.recipe,
        settings,
        lambda text: print(output.announcement(text), flush=True),
    )
    if not drained:
        print(
            f"headrace: requests were still inside after server.drain_s={settings.server_drain_s:g}; they were cut off",
            file=sys.stderr,
        )
    return _leave(0 if drained else EXIT_NOT_DRAINED)


def _leave(code: int) -> int:
    """A model that is still running cannot be stopped; an orderly exit would abort when it comes back."""
    if any(thread.name.startswith("headrace-") for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code
