"""The one settings table. Command-line flags, environment, file, admin API and the reference page derive from it.

A field `decode_workers` is the setting `decode.workers`; its unit, if any, ends its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from typing import Any, cast

from headrace.errors import SettingError
from headrace.units import parse_bytes


def _setting(
    default: Any,
    says: str,
    *,
    low: float | None = None,
    high: float | None = None,
    one_of: tuple[Any, ...] = (),
    live: bool = False,
) -> Any:
    return field(
        default=default, metadata={"says": says, "low": low, "high": high, "one_of": one_of, "live": live}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every knob of a server, immutable. A change makes a new value; a request ends under the one it began with."""

    accelerator: str = _setting(
        "auto",
        "Where the model runs: auto, cpu, cuda, tensorrt, or emulated:BASE_MS+PER_IMAGE_MS (for measuring pipelines).",
    )
    batch_max_items: int = _setting(8, "Most images in one batch.", low=1, high=1024)
    batch_window_ms: float = _setting(
        4.0, "How long the first image of a batch waits for company that is on its way.", low=0, high=10_000
    )
    batch_in_flight: int = _setting(
        2, "Batches handed to the accelerator at once, so that copying overlaps computing.", low=1, high=16
    )
    decode_workers: int = _setting(
        0, "Decode threads; 0 takes the cores this process may really use.", low=0, high=1024
    )
    decode_fidelity: str = _setting(
        "fast",
        "fast decodes JPEGs at a reduced DCT scale; exact decodes in full.",
        one_of=("fast", "exact"),
        live=True,
    )
    decode_skip_scans: bool = _setting(
        True,
        "Under fast fidelity, leave out the scans of progressive JPEGs that a reduced decode does not need.",
        live=True,
    )
    door_max_inside: int = _setting(
        64,
        "Requests inside the server at once; one more is refused at the door.",
        low=1,
        high=100_000,
        live=True,
    )
    door_max_inside_bytes: int = _setting(
        256 * 2**20,
        "Bytes of request bodies inside the server at once; a body that does not fit is refused unread.",
        low=2**20,
        high=2**40,
        live=True,
    )
    door_overload_status: int = _setting(429, "HTTP status of a refusal for overload.", one_of=(429, 503))
    limits_max_body_bytes: int = _setting(32 * 2**20, "Largest request body.", low=1, high=2**31, live=True)
    limits_max_pixels: int = _setting(
        200_000_000,
        "Most pixels an image header may promise; more is refused unread.",
        low=1,
        high=2**31,
        live=True,
    )
    limits_max_decode_bytes: int = _setting(
        512 * 2**20,
        "Most memory one decode may need, judged from the header before anything is allocated.",
        low=2**16,
        high=2**34,
        live=True,
    )
    memory_keep: bool = _setting(
        True,
        "Keep freed memory in the process (glibc) instead of mapping and faulting it in again for every image.",
    )
    model_name: str = _setting("", "Name in the /v2 API; empty takes the model file's name.")
    model_threads: int = _setting(
        0,
        "Threads of one model run on the CPU; 0 shares the cores among the batches in flight.",
        low=0,
        high=1024,
    )
    prepare_path: str = _setting(
        "staged",
        "staged is the pipeline; legacy is one thread, full decode, float on the CPU: what most services do.",
        one_of=("staged", "legacy"),
    )
    request_timeout_ms: float = _setting(
        10_000.0,
        "A request that waited this long is answered 504 and its work dropped.",
        low=1,
        high=3_600_000,
        live=True,
    )
    request_body_timeout_ms: float = _setting(
        15_000.0,
        "A body that has not arrived after this long is answered 408.",
        low=1,
        high=3_600_000,
        live=True,
    )
    resize_hand_over_pixels: int = _setting(
        512 * 512,
        "Decoded pictures up to this size are resized by the thread that decoded them, larger ones by the resize threads.",
        low=0,
        high=2**31,
    )
    resize_workers: int = _setting(
        0, "Resize threads; 0 takes one for every four decode threads.", low=0, high=1024
    )
    server_host: str = _setting("127.0.0.1", "Address to listen on; 0.0.0.0 for all.")
    server_port: int = _setting(8000, "Port of /predict and /v2; 0 takes a free one.", low=0, high=65_535)
    server_metrics_port: int = _setting(
        8002, "Port of /metrics and the plan; 0 takes a free one.", low=0, high=65_535
    )
    server_drain_s: float = _setting(
        20.0, "After SIGTERM, how long requests inside may take to finish.", low=0, high=3600
    )


@dataclass(frozen=True, slots=True)
class SettingInfo:
    """One row of the table, for flags, pages and messages."""

    name: str
    attribute: str
    kind: type
    default: Any
    says: str
    low: float | None
    high: float | None
    """Both or neither."""
    one_of: tuple[Any, ...]
    live: bool


def _info(row: Field[Any]) -> SettingInfo:
    assert row.default is not MISSING, f"setting {row.name} has no default"
    meta = cast(Mapping[str, Any], row.metadata)
    return SettingInfo(
        name=row.name.replace("_", ".", 1),
        attribute=row.name,
        kind=type(row.default),
        default=row.default,
        says=meta["says"],
        low=meta["low"],
        high=meta["high"],
        one_of=meta["one_of"],
        live=meta["live"],
    )


TABLE: tuple[SettingInfo, ...] = tuple(_info(row) for row in fields(Settings))
BY_NAME: Mapping[str, SettingInfo] = {info.name: info for info in TABLE}


def parse_value(info: SettingInfo, text: str) -> Any:
    """Text from a flag, file or variable as the setting's type. Raises SettingError that names setting, value and what fits."""
    try:
        if info.kind is bool:
            return {
                "true": True,
                "1": True,
                "yes": True,
                "on": True,
                "false": False,
                "0": False,
                "no": False,
                "off": False,
            }[text.lower()]
        if info.kind is int:
            return parse_bytes(text) if info.name.endswith("_bytes") else int(text)
        return info.kind(text)
    except (KeyError, ValueError, OverflowError):
        raise SettingError(f"{info.name}={text[:80]!r} is not {_kind_in_words(info)}") from None


def changed(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """New settings with `changes` (setting name -> value or text) applied. Raises SettingError; all or nothing."""
    values = {}
    for name, value in changes.items():
        info = BY_NAME.get(name)
        if info is None:
            raise SettingError(f"no setting is called {name!r}; {_near(name)}")
        values[info.attribute] = check_value(
            info, parse_value(info, value) if isinstance(value, str) else value
        )
    return replace(settings, **values)


def check_value(info: SettingInfo, value: Any) -> Any:
    """The value, converted where that loses nothing. Raises SettingError when its type or size does not fit."""
    if info.kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not info.kind:
        raise SettingError(f"{info.name}={value!r} is not {_kind_in_words(info)}")
    if info.one_of and value not in info.one_of:
        raise SettingError(f"{info.name}={value!r} is not one of {', '.join(map(str, info.one_of))}")
    low, high = info.low, info.high
    if low is not None and high is not None and not low <= cast(float, value) <= high:
        raise SettingError(f"{info.name}={value!r} is outside {low:g} to {high:g}")
    return value


def _kind_in_words(info: SettingInfo) -> str:
    if info.name.endswith("_bytes"):
        return "a number of bytes like 64MiB"
    return {bool: "true or false", int: "a whole number", float: "a number", str: "text"}[info.kind]


def _near(name: str) -> str:
    head = name.split(".")[0]
    siblings = [known for known in BY_NAME if known.split(".")[0] == head]
    return "did you mean " + " or ".join(siblings) if siblings else "`headrace settings` lists them"
