"""The verbs: one file each, one line each in the table, in the order of `--help`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import NamedTuple

from headrace.cli.verbs import census, estimate, isolate, load, parity, plan, recipe, record, serve, settings


class Verb(NamedTuple):
    """What the command line knows of a verb."""

    help: str
    describe: str
    flags: Callable[[argparse.ArgumentParser], None]
    """Adds its flags."""
    run: Callable[[argparse.Namespace], int]
    """Does it; the exit code."""


VERBS: Mapping[str, Verb] = {
    "serve": Verb(
        "serve a model over HTTP",
        "Serve an ONNX image model over HTTP until SIGTERM.",
        serve.flags,
        serve.run,
    ),
    "plan": Verb(
        "the operations of a plan, each with its measured cost",
        "List every operation from bytes to prediction: where it runs, what it costs, what could be done about it.",
        plan.flags,
        plan.run,
    ),
    "parity": Verb(
        "how far fast preparation is from the reference, on your images and your model",
        "Compare fast and exact preparation with full decode and antialiased Pillow resize: pixels, and the model's answers.",
        parity.flags,
        parity.run,
    ),
    "record": Verb(
        "watch a service from outside, into a capture",
        "Sample the machine, the processes of a service, its GPUs and its stages, without root and without touching it.",
        record.flags,
        record.run,
    ),
    "load": Verb(
        "load a server and measure what it does",
        "Send requests in an open or closed loop; latency counts from the intended time, and a run that cannot be trusted says so.",
        load.flags,
        load.run,
    ),
    "isolate": Verb(
        "which link of the chain is slow: the model alone, then one link more at a time",
        "Measure the model alone with resident tensors, then add copy, normalise, resize, decode, fetch and HTTP one by one.",
        isolate.flags,
        isolate.run,
    ),
    "census": Verb(
        "what the traffic is made of, and what a cache would win",
        "Count images or requests by what they are, hold them against a second set, and estimate the hit rate of every cache size.",
        census.flags,
        census.run,
    ),
    "estimate": Verb(
        "who waits for whom, from a few numbers",
        "Bounds, utilisation and queue growth from service times and workers of the stages, or from a capture.",
        estimate.flags,
        estimate.run,
    ),
    "settings": Verb(
        "list every setting",
        "List every setting with its default, bounds and meaning.",
        settings.flags,
        settings.run,
    ),
    "recipe": Verb(
        "show a recipe as TOML, also from a preprocessor_config.json or a timm config.json",
        "Read a recipe in any known form and print it as TOML.",
        recipe.flags,
        recipe.run,
    ),
}
