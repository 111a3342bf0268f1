"""Flags that several verbs share, and what their values mean."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from headrace.cli import output
from headrace.errors import UsageError
from headrace.records.settings import TABLE, Settings
from headrace.store.settings_files import load_settings, split_assignment
from headrace.units import parse_duration_s


def model_flags(verb: argparse.ArgumentParser) -> None:
    """MODEL and --recipe."""
    verb.add_argument(
        "model",
        type=Path,
        nargs="?",
        metavar="MODEL.onnx",
        help="the model; left out only with an emulated accelerator",
    )
    verb.add_argument(
        "--recipe",
        type=Path,
        metavar="FILE",
        help="TOML, preprocessor_config.json or timm config.json; default: MODEL.recipe.toml",
    )


def image_flags(verb: argparse.ArgumentParser) -> None:
    """--images and --most."""
    verb.add_argument(
        "--images", type=Path, nargs="+", required=True, metavar="PATH", help="image files and folders"
    )
    verb.add_argument("--most", type=at_least_one, metavar="N", help="use the first N images only")


def json_flag(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--json", action="store_true", help="as JSON")


def setting_flags(verb: argparse.ArgumentParser) -> None:
    """--settings, --set and one flag for each setting."""
    verb.add_argument(
        "--settings", type=Path, metavar="FILE", help="settings file (TOML); also HEADRACE_SETTINGS"
    )
    verb.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="change one setting; may be repeated"
    )
    group = verb.add_argument_group(
        "settings", "each also as HEADRACE_NAME in the environment, or in the settings file"
    )
    for info in TABLE:
        flag = "--" + info.name.replace(".", "-").replace("_", "-")
        choice = f" ({', '.join(map(str, info.one_of))})" if info.one_of else ""
        text = f"{info.says}{choice} Default: {output.shown(info.default)}.".replace("%", "%%")
        group.add_argument(flag, dest=f"setting:{info.name}", metavar="VALUE", help=text)


def settings_of(options: argparse.Namespace) -> Settings:
    """What `setting_flags` gave, over the environment and the file."""
    file = options.settings or (
        Path(os.environ["HEADRACE_SETTINGS"]) if os.environ.get("HEADRACE_SETTINGS") else None
    )
    flags = {
        info.name: value for info in TABLE if (value := getattr(options, f"setting:{info.name}")) is not None
    }
    flags |= dict(split_assignment(text) for text in options.set)
    return load_settings(file, os.environ, flags)


def model_of(options: argparse.Namespace, settings: Settings) -> Path | None:
    """The model file; None with an emulated accelerator. Raises UsageError."""
    model: Path | None = options.model
    if model is None and not settings.accelerator.startswith("emulated"):
        raise UsageError(
            "give the model file, or --accelerator emulated:5ms+1ms to measure the pipeline without one"
        )
    return model


def at_least_one(text: str) -> int:
    """A flag's value: a whole number from 1 up."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 up")
    return int(text)


def duration_s(text: str) -> float:
    """A flag's value: a time with its unit, above 0."""
    try:
        seconds = parse_duration_s(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None
    if seconds <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no time above 0")
    return seconds
