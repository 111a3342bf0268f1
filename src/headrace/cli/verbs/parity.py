"""`headrace parity`."""

from __future__ import annotations

import argparse

from headrace.cli import output
from headrace.cli.flags import image_flags, json_flag, model_flags, setting_flags, settings_of


def flags(verb: argparse.ArgumentParser) -> None:
    model_flags(verb)
    image_flags(verb)
    json_flag(verb)
    setting_flags(verb)


def run(options: argparse.Namespace) -> int:
    from headrace.core.image.decode_plan import Limits
    from headrace.workflows.image_files import find_images
    from headrace.workflows.parity import parity
    from headrace.workflows.recipes import recipe_path

    settings = settings_of(options)
    report = parity(
        options.model,
        recipe_path(options.model, options.recipe),
        find_images(options.images, options.most),
        skip_scans=settings.decode_skip_scans,
        limits=Limits(settings.limits_max_pixels, settings.limits_max_decode_bytes),
    )
    print(output.as_json(report.as_dict()) if options.json else report.as_text())
    return 0
