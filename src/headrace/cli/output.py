"""What the verbs print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import orjson

from headrace.records.settings import TABLE

if TYPE_CHECKING:
    from headrace.workflows.plan import Cost, PlanReport
    from headrace.workflows.serve import Announcement

EMULATED = "The accelerator is EMULATED: these figures are about the pipeline, never about a model."


def as_json(value: Any) -> str:
    """Stable, indented; NaN becomes null."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS, default=str).decode()


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()) -> str:
    """Columns as wide as their widest cell; those in `right` are aligned right."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]

    def line(row: Sequence[str]) -> str:
        cells = (
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        return "  ".join(cells).rstrip()

    return "\n".join([line(head), line(["-" * width for width in widths]), *(line(row) for row in rows)])


def shown(value: Any) -> str:
    """A setting's value as one would write it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) if value != "" else "empty"


def announcement(told: Announcement) -> str:
    """The lines a server greets with."""
    stages = " -> ".join(f"{stage.name} x{stage.workers}" for stage in told.plan.stages)
    host = f"[{told.host}]" if ":" in told.host else told.host
    lines = [
        f"headrace serves {told.name} on http://{host}:{told.port}/predict (device {told.device}, path {told.plan.path}: {stages})",
        f"figures on http://{host}:{told.metrics_port}/metrics",
    ]
    if told.emulated:
        lines.append(EMULATED)
    return "\n".join(lines + [f"note: {note}" for note in told.notes if not told.emulated])


def plan(report: PlanReport) -> str:
    """The table of operations."""
    rows = [_plan_row(cost) for cost in report.costs]
    head = [
        "stage",
        "threads",
        "operation",
        "ms/image",
        "share",
        "runs on",
        "cacheable",
        "merges with",
        "movable to",
    ]
    lines = [
        f"path {report.path}, {report.images} images, device {report.device}",
        "",
        table(head, rows, frozenset({1, 3, 4})),
    ]
    if report.emulated:
        lines += ["", EMULATED]
    lines += [f"not read: {line}" for line in report.refused]
    return "\n".join(lines)


def _plan_row(cost: Cost) -> list[str]:
    operation = cost.operation
    return [
        cost.stage,
        str(cost.workers),
        operation.name,
        f"{cost.median_ms:.3f}",
        f"{cost.share:.0%}",
        operation.where,
        "yes" if operation.cacheable else "no",
        operation.merges_with or "-",
        operation.movable or "-",
    ]


def settings_rows() -> list[dict[str, Any]]:
    """The settings table as data."""
    return [
        {
            "name": info.name,
            "type": info.kind.__name__,
            "default": info.default,
            "low": info.low,
            "high": info.high,
            "one_of": list(info.one_of),
            "live": info.live,
            "says": info.says,
        }
        for info in TABLE
    ]


def settings() -> str:
    """The settings table for people."""
    rows = [[info.name, shown(info.default), "yes" if info.live else "no", info.says] for info in TABLE]
    return table(["setting", "default", "live", "what it does"], rows)
