"""`headrace plan`."""

from __future__ import annotations

import argparse

from headrace.cli import output
from headrace.cli.flags import image_flags, json_flag, model_flags, model_of, setting_flags, settings_of


def flags(verb: argparse.ArgumentParser) -> None:
    model_flags(verb)
    image_flags(verb)
    json_flag(verb)
    setting_flags(verb)


def run(options: argparse.Namespace) -> int:
    from headrace.workflows.image_files import find_images
    from headrace.workflows.plan import measure_plan
    from headrace.workflows.recipes import find_recipe

    settings = settings_of(options)
    model = model_of(options, settings)
    report = measure_plan(
        model, find_recipe(model, options.recipe), find_images(options.images, options.most), settings
    )
    print(output.as_json(report.as_dict()) if options.json else output.plan(report))
    return 0
