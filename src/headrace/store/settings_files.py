"""Settings from where operators put them: a TOML file, then the environment, then the command line; the later wins."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from headrace.errors import SettingError
from headrace.records.settings import BY_NAME, Settings, changed

_PREFIX = "HEADRACE_"
_MOST_BYTES = 1 << 20
_OTHER_VARIABLES = frozenset({"HEADRACE_ASSETS", "HEADRACE_KEEP_ARCHIVES", "HEADRACE_SETTINGS"})


def load_settings(file: Path | None, environment: Mapping[str, str], flags: Mapping[str, str]) -> Settings:
    """Raises SettingError that names the value and where it came from."""
    settings = Settings()
    if file is not None:
        settings = _from(str(file), settings, _read(file))
    settings = _from("environment", settings, _environment(environment))
    return _from("command line", settings, flags)


def split_assignment(text: str) -> tuple[str, str]:
    """`batch.max_items=4` -> its name and value. Raises SettingError."""
    name, equals, value = text.partition("=")
    if not equals:
        raise SettingError(f"--set {text!r} is not NAME=VALUE, as in --set batch.max_items=4")
    return name.strip(), value.strip()


def _from(source: str, settings: Settings, changes: Mapping[str, Any]) -> Settings:
    try:
        return changed(settings, changes)
    except SettingError as problem:
        raise SettingError(f"{source}: {problem}") from None


def _read(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as opened:
            content = opened.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise SettingError(f"settings file {file} is larger than {_MOST_BYTES} bytes")
        tables = tomllib.loads(content.decode())
    except OSError as problem:
        raise SettingError(f"settings file {file} cannot be read: {problem.strerror}") from None
    except (ValueError, RecursionError) as problem:
        raise SettingError(f"settings file {file} is not TOML: {problem}") from None
    return dict(_flat(tables))


def _flat(tables: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    for table, rows in tables.items():
        if isinstance(rows, dict):
            for name, value in rows.items():
                yield f"{table}.{name}", value
        else:
            yield table, rows


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    names = {_PREFIX + name.upper().replace(".", "_"): name for name in BY_NAME}
    found = {}
    for variable, value in environment.items():
        if variable in names:
            found[names[variable]] = value
        elif variable.startswith(_PREFIX) and variable not in _OTHER_VARIABLES:
            raise SettingError(f"environment: {variable} is no setting; `headrace settings` lists them")
    return found
