"""`python -m headrace.cli.reference`: the pages of docs/reference, made from what they describe.

Nothing in them depends on the machine: no width of a terminal, no host, no version of argparse.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from prometheus_client.metrics_core import Metric

from headrace import errors
from headrace.cli import output
from headrace.cli.main import build_parser
from headrace.records.capture import FORMAT, End, Manifest, Note
from headrace.records.recipe import Recipe, RecipeFile
from headrace.records.settings import TABLE, SettingInfo, Settings
from headrace.records.tables import TABLES, columns
from headrace.serve import metrics
from headrace.serve.engine.engine import open_engine
from headrace.serve.http.counters import Counters
from headrace.units import format_bytes

FOLDER = Path("docs/reference")
MADE = "<!-- Made by `python -m headrace.cli.reference`: change what it describes, then run that. -->"


def pages() -> Mapping[str, str]:
    """The text of every page, by file name."""
    makers: tuple[tuple[str, Callable[[], Iterator[str]]], ...] = (
        ("settings.md", _settings),
        ("cli.md", _command_line),
        ("metrics.md", _metrics),
        ("errors.md", _errors),
        ("capture.md", _capture),
    )
    return {name: "\n".join([MADE, "", *make()]).rstrip() + "\n" for name, make in makers}


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the pages."""
    parser = argparse.ArgumentParser("python -m headrace.cli.reference", description="Write docs/reference.")
    parser.add_argument("--into", type=Path, default=FOLDER, metavar="FOLDER")
    folder: Path = parser.parse_args(arguments).into
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, "utf-8")
        print(folder / name)
    return 0


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


# --- settings ----------------------------------------------------------------------------------------------------------------


def _settings() -> Iterator[str]:
    yield "# Settings"
    yield ""
    yield "Each setting `a.b_c` can be given in four ways; the later wins: a settings file (`--settings FILE`, or its path in"
    yield "`HEADRACE_SETTINGS`), the environment (`HEADRACE_A_B_C`), the flag `--a-b-c VALUE`, and `--set a.b_c=VALUE`. In the"
    yield "file it is `b_c` in the table `[a]`; `accelerator` stands above all tables. A live setting may change while the server"
    yield "runs."
    yield ""
    rows = [
        (f"`{info.name}`", _default(info), _fits(info), "yes" if info.live else "no", info.says)
        for info in TABLE
    ]
    yield from _table(("setting", "default", "takes", "live", "what it does"), rows)


def _default(info: SettingInfo) -> str:
    if info.name.endswith("_bytes"):
        return f"`{format_bytes(info.default).replace('.0 ', '').replace(' ', '')}`"
    return f"`{output.shown(info.default)}`" if info.default != "" else "empty"


def _fits(info: SettingInfo) -> str:
    if info.one_of:
        return ", ".join(f"`{value}`" for value in info.one_of)
    kind = {bool: "`true` or `false`", int: "whole number", float: "number", str: "text"}[info.kind]
    if info.name.endswith("_bytes"):
        kind = "bytes, as in `64MiB`"
    if info.low is None or info.high is None:
        return kind
    return f"{kind}, {_bound(info, info.low)} to {_bound(info, info.high)}"


def _bound(info: SettingInfo, value: float) -> str:
    return format_bytes(value) if info.name.endswith("_bytes") else f"{value:,.0f}".replace(",", " ")


# --- command line ------------------------------------------------------------------------------------------------------------


def _command_line() -> Iterator[str]:
    parser = build_parser()
    verbs = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    yield "# Command line"
    yield ""
    yield f"{parser.description} Wrong use ends with exit code 64 and one line; [errors](errors.md) lists the others. A"
    yield "server that had to cut requests off ends with 75, a load run that is not valid with 3, a command interrupted by Ctrl-C"
    yield "with 130 (what was measured is kept and shown), one whose output nobody reads any more with 141."
    yield ""
    yield from _table(
        ("verb", "what it does"),
        [
            (f"[`{choice.dest}`](#headrace-{choice.dest})", choice.help or "")
            for choice in verbs._choices_actions
        ],
    )
    for name, verb in verbs.choices.items():
        yield ""
        yield f"## headrace {name}"
        yield ""
        yield from _verb(name, verb)


def _verb(name: str, verb: argparse.ArgumentParser) -> Iterator[str]:
    actions = [action for action in verb._actions if action.dest != "help"]
    own = [action for action in actions if not action.dest.startswith("setting:")]
    usage = " ".join(["headrace", name, *map(_usage, own), *(["[SETTINGS]"] if own != actions else [])])
    yield verb.description or ""
    yield ""
    yield f"    {usage}"
    yield ""
    yield from _table(
        ("argument", "meaning"),
        [(f"`{_usage(action).strip('[]')}`", action.help or "the file to read") for action in own],
    )
    if own != actions:
        yield ""
        yield f"`[SETTINGS]`: the {len(actions) - len(own)} flags of [the settings](settings.md), each as `--NAME VALUE`."


def _usage(action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else str(action.metavar)
    value += " ..." if action.nargs == "+" else ""
    text = f"{action.option_strings[0]} {value}".rstrip() if action.option_strings else value
    needed = action.required if action.option_strings else action.nargs != "?"
    return text if needed else f"[{text}]"


# --- metrics -----------------------------------------------------------------------------------------------------------------


def families() -> tuple[Metric, ...]:
    """Everything that /metrics shows under a name of ours, from a server that was never started."""
    settings = Settings(accelerator="emulated:1ms+0ms", decode_workers=1, resize_workers=1)
    engine = open_engine(None, RecipeFile(recipe=Recipe(width=32, height=32)), settings)
    registry = metrics.exposition(engine, Counters(), "model")
    return tuple(family for family in registry.collect() if family.name.startswith("headrace_"))


def _metrics() -> Iterator[str]:
    yield "# Metrics"
    yield ""
    yield "`GET /metrics` on `server.metrics_port`, in Prometheus' text format. Times are in seconds, shares from 0 to 1. A counter"
    yield "`NAME` is written `NAME_total`; a histogram is `NAME_bucket`, `NAME_count` and `NAME_sum`. Beside these, the usual"
    yield "`process_*` figures of the process are there."
    yield ""
    rows = [
        (
            f"`{family.name}{'_total' if family.type == 'counter' else ''}`",
            family.type,
            ", ".join(f"`{label}`" for label in vars(family)["_labelnames"]),
            family.documentation,
        )
        for family in sorted(families(), key=lambda family: family.name)
    ]
    yield from _table(("name", "type", "labels", "what it is"), rows)


# --- errors ------------------------------------------------------------------------------------------------------------------


def error_classes() -> tuple[type[errors.HeadraceError], ...]:
    """The tree in the order of the source, without its root."""
    found = [value for value in vars(errors).values() if inspect.isclass(value)]
    return tuple(
        value
        for value in found
        if issubclass(value, errors.HeadraceError) and value is not errors.HeadraceError
    )


def _errors() -> Iterator[str]:
    yield "# Errors"
    yield ""
    yield "Over HTTP an error is JSON with `error`, a sentence for people; `code`, for machines; and `request_id`. On the command"
    yield "line it is one line, and the exit code. An error of a command has no HTTP status that anybody sees, an error of a"
    yield "request no exit code."
    yield ""
    rows = []
    for error in error_classes():
        operator = issubclass(error, errors.UsageError | errors.AssetError | errors.StorageError)
        rows.append(
            (
                f"`{error.code}`",
                "" if operator else str(error.http_status),
                str(error.exit_code) if operator else "",
                inspect.cleandoc(error.__doc__ or "").replace("\n", " "),
            )
        )
    yield from _table(("code", "HTTP status", "exit code", "meaning"), rows)
    yield ""
    yield "Refusals for overload take the status `door.overload_status`, and tell in `Retry-After` when to come again."


# --- captures ----------------------------------------------------------------------------------------------------------------


def _capture() -> Iterator[str]:
    yield "# Captures"
    yield ""
    yield f"What measuring writes and judging reads: a folder, format {FORMAT}. Tables are Arrow IPC streams (`NAME.arrows`, zstd inside)"
    yield "that other tools open: `pyarrow.ipc.open_stream`, `polars.read_ipc_stream`, and whatever else reads Arrow. `manifest.json`"
    yield "is written first, `end.json` last; a capture without an end was cut. `notes.jsonl` tells what happened, `index.jsonl` where"
    yield "each piece of a table lies, with its CRC-32: a reader trusts a table up to its first piece that is not whole."
    yield ""
    yield "Every row of a sample covers `window_s` seconds up to `t_s`: counts are amounts in that window, levels are readings at its"
    yield "end. Rows of one reading share `t_s`. What could not be read is missing, never 0. A later version may add tables and columns;"
    yield "a reader leaves out those it does not know."
    yield ""
    for kind in (Manifest, Note, End):
        yield from _fields(kind)
    for name, row in TABLES.items():
        yield f"## {name}"
        yield ""
        yield inspect.cleandoc(row.__doc__ or "")
        yield ""
        yield from _table(
            ("column", "type", "what it is"),
            [(f"`{column}`", info.kind, info.says) for column, info in columns(row).items()],
        )
        yield ""


def _fields(kind: type[Manifest] | type[Note] | type[End]) -> Iterator[str]:
    files = {Manifest: "manifest.json", Note: "A line of notes.jsonl", End: "end.json"}
    yield f"## {files[kind]}"
    yield ""
    yield inspect.cleandoc(kind.__doc__ or "")
    yield ""
    yield from _table(("field", "type"), [(f"`{field.name}`", f"`{field.type}`") for field in fields(kind)])
    yield ""


if __name__ == "__main__":
    sys.exit(main())
