"""The command line: verbs and flags only. What they do is in `workflows/`."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from headrace import __version__
from headrace.cli import output
from headrace.errors import HeadraceError, UsageError
from headrace.records.settings import TABLE, Settings
from headrace.store.settings_files import load_settings, split_assignment

EXIT_NOT_DRAINED = 75
"""sysexits' EX_TEMPFAIL: some requests were cut off."""


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
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


def _run(arguments: Sequence[str] | None) -> int:
    options = build_parser().parse_args(arguments)
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr
    )
    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # it warns of whatever a client sends
    warnings.filterwarnings("ignore", module="PIL")  # and so does Pillow
    code: int = options.run(options)
    return code


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
    verbs = parser.add_subparsers(title="verbs", required=True, metavar="VERB")
    _add_serve(verbs)
    _add_plan(verbs)
    _add_parity(verbs)
    _add_settings(verbs)
    _add_recipe(verbs)
    return parser


def _add_serve(verbs: Any) -> None:
    verb = verbs.add_parser(
        "serve",
        help="serve a model over HTTP",
        description="Serve an ONNX image model over HTTP until SIGTERM.",
    )
    _model_flags(verb)
    _setting_flags(verb)
    verb.set_defaults(run=_serve)


def _add_plan(verbs: Any) -> None:
    verb = verbs.add_parser(
        "plan",
        help="the operations of a plan, each with its measured cost",
        description="List every operation from bytes to prediction: where it runs, what it costs, what could be done about it.",
    )
    _model_flags(verb)
    _image_flags(verb)
    _setting_flags(verb)
    verb.set_defaults(run=_plan)


def _add_parity(verbs: Any) -> None:
    verb = verbs.add_parser(
        "parity",
        help="how far fast preparation is from the reference, on your images and your model",
        description="Compare fast and exact preparation with full decode and antialiased Pillow resize: pixels, and the model's answers.",
    )
    _model_flags(verb)
    _image_flags(verb)
    _setting_flags(verb)
    verb.set_defaults(run=_parity)


def _add_settings(verbs: Any) -> None:
    verb = verbs.add_parser(
        "settings",
        help="list every setting",
        description="List every setting with its default, bounds and meaning.",
    )
    verb.add_argument("--json", action="store_true", help="as JSON")
    verb.set_defaults(run=_settings)


def _add_recipe(verbs: Any) -> None:
    verb = verbs.add_parser(
        "recipe",
        help="show a recipe as TOML, also from a preprocessor_config.json or a timm config.json",
        description="Read a recipe in any known form and print it as TOML.",
    )
    verb.add_argument("file", type=Path, metavar="FILE")
    verb.set_defaults(run=_recipe)


def _model_flags(verb: argparse.ArgumentParser) -> None:
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


def _image_flags(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--images", type=Path, nargs="+", required=True, metavar="PATH", help="image files and folders"
    )
    verb.add_argument("--most", type=_at_least_one, metavar="N", help="use the first N images only")
    verb.add_argument("--json", action="store_true", help="as JSON")


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 up")
    return int(text)


def _setting_flags(verb: argparse.ArgumentParser) -> None:
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


def _load_settings(options: argparse.Namespace) -> Settings:
    file = options.settings or (
        Path(os.environ["HEADRACE_SETTINGS"]) if os.environ.get("HEADRACE_SETTINGS") else None
    )
    flags = {
        info.name: value for info in TABLE if (value := getattr(options, f"setting:{info.name}")) is not None
    }
    flags |= dict(split_assignment(text) for text in options.set)
    return load_settings(file, os.environ, flags)


def _model_path(options: argparse.Namespace, settings: Settings) -> Path | None:
    model: Path | None = options.model
    if model is None and not settings.accelerator.startswith("emulated"):
        raise UsageError(
            "give the model file, or --accelerator emulated:5ms+1ms to measure the pipeline without one"
        )
    return model


def _serve(options: argparse.Namespace) -> int:
    from headrace.workflows.serve import serve

    settings = _load_settings(options)
    drained = serve(
        _model_path(options, settings),
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


def _plan(options: argparse.Namespace) -> int:
    from headrace.workflows.image_files import find_images
    from headrace.workflows.plan import measure_plan
    from headrace.workflows.recipes import find_recipe

    settings = _load_settings(options)
    model = _model_path(options, settings)
    report = measure_plan(
        model, find_recipe(model, options.recipe), find_images(options.images, options.most), settings
    )
    print(output.as_json(report.as_dict()) if options.json else output.plan(report))
    return 0


def _parity(options: argparse.Namespace) -> int:
    from headrace.core.image.decode_plan import Limits
    from headrace.workflows.image_files import find_images
    from headrace.workflows.parity import parity
    from headrace.workflows.recipes import recipe_path

    settings = _load_settings(options)
    report = parity(
        options.model,
        recipe_path(options.model, options.recipe),
        find_images(options.images, options.most),
        skip_scans=settings.decode_skip_scans,
        limits=Limits(settings.limits_max_pixels, settings.limits_max_decode_bytes),
    )
    print(output.as_json(report.as_dict()) if options.json else report.as_text())
    return 0


def _settings(options: argparse.Namespace) -> int:
    print(output.as_json(output.settings_rows()) if options.json else output.settings())
    return 0


def _recipe(options: argparse.Namespace) -> int:
    from headrace.core.recipes.toml import to_toml
    from headrace.store.recipe_files import load_recipe

    print(to_toml(load_recipe(options.file)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
