"""The head of every capture that a verb writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import headrace
from headrace.clock import monotonic_s, wall_s
from headrace.host.machine import boot_id, checked_out_commit, machine_facts
from headrace.probe.gpus import gpu_facts
from headrace.records.capture import Manifest


def manifest(made_by: str, began_s: float, **fields: Any) -> Manifest:
    """`began_s`: the capture's time 0 on the monotonic clock; `fields` are those of `Manifest` that the verb knows."""
    return Manifest(
        headrace=headrace.__version__,
        made_by=made_by,
        began_wall_s=wall_s() - (monotonic_s() - began_s),
        began_monotonic_s=began_s,
        boot_id=boot_id(),
        machine=machine_facts() | {"gpus": gpu_facts()},
        commit=checked_out_commit(Path(headrace.__file__).parent),
        **fields,
    )
