"""The GPU probe: without a driver, against a stand-in binding, and against a stand-in library below the real binding."""

from __future__ import annotations

import ctypes
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.server_process import PATIENCE_S, until

from headrace.probe.gpus import CLOCK_REASONS, GpuProbe, clock_reasons, gpu_facts
from headrace.probe.nvml import pcie
from headrace.records.rows.gpu import GpuProcessRow, GpuRow

NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, LIBRARY_NOT_FOUND, LOST, UNKNOWN = 3, 4, 6, 12, 15, 999


class StandInError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"code {value}")
        self.value = value


class StandIn:
    """Behaves like pynvml. `answers` maps a function to its answer, to a function that makes it, or to a StandInError."""

    NVMLError = StandInError

    def __init__(self, count: int = 1, **answers: Any) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.answers: dict[str, Any] = {
            "nvmlInit": None, "nvmlShutdown": None, "nvmlDeviceGetCount": count,
            "nvmlDeviceGetHandleByIndex": lambda index: f"handle {index}",
        } | answers  # fmt: skip

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            self.calls.append((name, arguments))
            answer = self.answers.get(name, StandInError(NOT_SUPPORTED))
            answer = answer(*arguments) if callable(answer) else answer
            if isinstance(answer, StandInError):
                raise answer
            return answer

        return call

    def times(self, name: str) -> int:
        return sum(called == name for called, _ in self.calls)


def samples(*entries: tuple[int, float]) -> tuple[int, list[Any]]:
    """(time stamp, percent) as nvmlDeviceGetSamples gives them."""
    fields = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
    return 1, [
        SimpleNamespace(timeStamp=stamp, sampleValue=SimpleNamespace(**dict.fromkeys(fields, value)))
        for stamp, value in entries
    ]


def rates(gpu: int, memory: int = 0) -> SimpleNamespace:
    return SimpleNamespace(gpu=gpu, memory=memory)


def process(pid: int, memory: int | None = 5) -> SimpleNamespace:
    return SimpleNamespace(pid=pid, usedGpuMemory=memory)


def gpu_row(probe: GpuProbe, now_s: float) -> GpuRow:
    (row,) = [row for row in probe.read(now_s) if isinstance(row, GpuRow)]
    return row


def why(probe: GpuProbe) -> dict[str, str]:
    return {item.what: item.why for item in probe.unseen()}


def test_without_a_driver_nothing_is_read_and_it_is_said_once() -> None:
    probe = GpuProbe(StandIn(nvmlInit=StandInError(LIBRARY_NOT_FOUND)))
    assert list(probe.read(0.0)) == list(probe.read(1.0)) == []
    assert why(probe) == {"GPUs": "no NVIDIA driver here (libnvidia-ml.so.1 not found)"}
    probe.close()
    assert gpu_facts(StandIn(nvmlInit=StandInError(LIBRARY_NOT_FOUND))) == []


def test_a_driver_without_gpus() -> None:
    nvml = StandIn(count=0)
    probe = GpuProbe(nvml)
    assert list(probe.read(0.0)) == [] and "shows no GPU" in why(probe)["GPUs"]
    probe.close()
    assert gpu_facts(StandIn(count=0)) == [] and nvml.times("nvmlShutdown") == 1


def test_a_gpu_that_refuses_everything_keeps_its_row_and_every_value_absent() -> None:
    nvml = StandIn()
    probe = GpuProbe(nvml, pcie_thread=False)
    row = gpu_row(probe, 1.0)
    told = row._asdict()
    assert (told.pop("t_s"), told.pop("window_s"), told.pop("device"), told.pop("emulated")) == (
        1,
        0,
        0,
        False,
    )
    assert set(told.values()) == {None}
    assert why(probe)["busy share of GPU 0"] == "not offered by this GPU or driver"
    unseen, calls = probe.unseen(), len(nvml.calls)
    assert gpu_row(probe, 1.5).window_s == 0.5
    assert probe.unseen() == unseen and len(nvml.calls) == calls, (
        "what is refused for good is not asked again"
    )
    probe.close()
    assert nvml.times("nvmlInit") == nvml.times("nvmlShutdown") == 1


def test_an_old_binding_that_lacks_functions_refuses_like_a_driver() -> None:
    class Bare:
        NVMLError = StandInError
        nvmlInit = nvmlShutdown = staticmethod(lambda: None)
        nvmlDeviceGetCount = staticmethod(lambda: 1)
        nvmlDeviceGetHandleByIndex = staticmethod(lambda index: index)

    probe = GpuProbe(Bare(), pcie_thread=False)
    assert gpu_row(probe, 0.0).power_w is None
    assert why(probe)["power of GPU 0"] == "the driver is too old for it"


def test_the_busy_share_is_the_mean_of_the_new_samples_over_the_time_they_look_back_on() -> None:
    feed = {
        1: iter([samples((10_000_000, 80)), samples((10_000_000, 80), (10_100_000, 20), (10_250_000, 40)), samples()]),
        2: iter([samples((10_000_000, 1)), samples((10_200_000, 7)), samples()]),
    }  # fmt: skip
    nvml = StandIn(
        nvmlDeviceGetSamples=lambda handle, kind, since: next(feed[kind]),
        nvmlDeviceGetUtilizationRates=rates(99, 9),
    )
    probe = GpuProbe(nvml, pcie_thread=False)
    first, second, third = (gpu_row(probe, now_s) for now_s in (0.0, 0.2, 0.4))
    assert (first.busy_ratio, first.busy_window_s) == (0.99, None), (
        "samples of before the capture do not count"
    )
    assert (second.busy_ratio, second.busy_window_s) == (pytest.approx(0.3), pytest.approx(0.25))
    assert second.memory_busy_ratio == pytest.approx(0.07)
    assert (third.busy_ratio, third.busy_window_s) == (None, None), "nothing new is no reading"


def test_when_samples_stay_away_the_drivers_latest_figure_is_taken() -> None:
    feed = iter([samples((1, 10)), samples((200_001, 10))])
    nvml = StandIn(
        nvmlDeviceGetSamples=lambda handle, kind, since: next(feed, StandInError(NOT_FOUND)) if kind == 1 else samples(),
        nvmlDeviceGetUtilizationRates=rates(42, 3),
    )  # fmt: skip
    probe = GpuProbe(nvml, pcie_thread=False)
    shares = [gpu_row(probe, now_s).busy_ratio for now_s in (0.0, 0.2, 0.4, 2.0, 2.3)]
    assert shares == [0.42, pytest.approx(0.1), None, None, 0.42]
    assert not any("samples of the busy share" in what for what in why(probe)), "no new sample is no refusal"


ENTRIES = st.lists(
    st.tuples(st.integers(0, 2**64 - 1), st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=True)),
    max_size=20,
)


@given(ENTRIES, ENTRIES, st.integers(-1, 9))
@settings(deadline=None)
def test_whatever_samples_hold_a_share_is_a_share(before: Any, after: Any, value_type: int) -> None:
    feed = iter([before, after])
    nvml = StandIn(
        nvmlDeviceGetSamples=lambda handle, kind, since: (
            value_type,
            samples(*next(feed) if kind == 1 else ())[1],
        )
    )
    probe = GpuProbe(nvml, pcie_thread=False)
    for now_s in (0.0, 0.2):
        row = gpu_row(probe, now_s)
        assert row.busy_ratio is None or 0 <= row.busy_ratio <= 1
        assert row.busy_window_s is None or row.busy_window_s > 0


def test_slow_things_are_asked_once_a_second() -> None:
    nvml = StandIn(
        nvmlDeviceGetTemperatureV=55,
        nvmlDeviceGetPowerUsage=1500,
        nvmlDeviceGetComputeRunningProcesses_v3=[process(os.getpid())],
        nvmlDeviceGetGraphicsRunningProcesses_v3=[],
    )
    probe = GpuProbe(nvml, pcie_thread=False)
    readings = [list(probe.read(step * 0.2)) for step in range(11)]
    temperatures = [rows[0].temperature_c for rows in readings]
    assert temperatures == [55, *[None] * 4, 55, *[None] * 4, 55]
    assert [len(rows) for rows in readings] == [2, 1, 1, 1, 1, 2, 1, 1, 1, 1, 2]
    assert [rows[0].power_w for rows in readings] == [1.5] * 11
    assert readings[5][1].window_s == pytest.approx(1.0)


def test_a_process_that_computes_and_draws_is_one_row() -> None:
    nvml = StandIn(
        nvmlDeviceGetComputeRunningProcesses_v3=[process(1, 7), process(os.getpid(), None)],
        nvmlDeviceGetGraphicsRunningProcesses_v3=[process(1, 7)],
    )
    probe = GpuProbe(nvml, pcie_thread=False)
    rows = [row for row in probe.read(0.0) if isinstance(row, GpuProcessRow)]
    assert [(row.pid, row.memory_bytes, row.busy_ratio) for row in rows] == [
        (1, 7, None),
        (os.getpid(), None, None),
    ]


def test_a_list_that_cannot_be_true_is_told() -> None:
    nvml = StandIn(
        nvmlDeviceGetUtilizationRates=rates(50),
        nvmlDeviceGetComputeRunningProcesses_v3=[],
        nvmlDeviceGetGraphicsRunningProcesses_v3=[],
    )
    probe = GpuProbe(nvml, pcie_thread=False)
    list(probe.read(0.0))
    assert "those outside this container are hidden" in why(probe)["processes of GPU 0"]
    nvml.answers["nvmlDeviceGetComputeRunningProcesses_v3"] = [process(2**22 + 5, None)]
    list(probe.read(1.0))
    assert "is not one of this machine's" in why(probe)["processes' true numbers of GPU 0"]
    assert why(probe)["memory of processes of GPU 0"] == "the driver hides it here"


def test_an_idle_gpu_without_processes_is_no_riddle() -> None:
    nvml = StandIn(
        nvmlDeviceGetUtilizationRates=rates(0),
        nvmlDeviceGetComputeRunningProcesses_v3=[],
        nvmlDeviceGetGraphicsRunningProcesses_v3=[],
    )
    probe = GpuProbe(nvml, pcie_thread=False)
    list(probe.read(0.0))
    assert not any("processes" in what and "share" not in what for what in why(probe))


def test_shares_of_processes_skip_what_drivers_invent() -> None:
    def shares(handle: str, since: int) -> list[Any]:
        entry = lambda pid, stamp, share: SimpleNamespace(pid=pid, timeStamp=stamp, smUtil=share)  # noqa: E731
        if since == 0:
            return [entry(1, 1_000, 88)]
        return [
            entry(1, 3_000, 30),
            entry(1, 2_000, 90),
            entry(0, 9_000, 1),
            entry(2, 2_500, 4_000_000),
            entry(4, 500, 7),
        ]

    nvml = StandIn(
        nvmlDeviceGetProcessesUtilizationInfo=shares,
        nvmlDeviceGetComputeRunningProcesses_v3=[process(pid) for pid in (1, 2, 3, 4)],
        nvmlDeviceGetGraphicsRunningProcesses_v3=[],
    )
    probe = GpuProbe(nvml, pcie_thread=False)
    first, second = (
        [row.busy_ratio for row in probe.read(t) if isinstance(row, GpuProcessRow)] for t in (0.0, 1.0)
    )
    assert first == [None] * 4, "what was before the capture does not count"
    assert second == [0.3, None, 0.0, 0.0], "an impossible share is absent, no share is none"


def test_no_permission_and_trouble_that_passes() -> None:
    power = iter([StandInError(UNKNOWN), 250_000])
    nvml = StandIn(
        nvmlDeviceGetPowerUsage=lambda handle: next(power), nvmlDeviceGetClockInfo=StandInError(NO_PERMISSION)
    )
    probe = GpuProbe(nvml, pcie_thread=False)
    assert [gpu_row(probe, t).power_w for t in (0.0, 0.2)] == [None, 250.0]
    assert why(probe)["SM clock of GPU 0"] == "this user may not read it"
    assert why(probe)["power of GPU 0"] == "NVML: code 999"
    assert nvml.times("nvmlDeviceGetClockInfo") == 1


def test_a_lost_gpu_falls_silent_and_its_neighbour_does_not() -> None:
    lost: set[str] = set()

    def power(handle: str) -> Any:
        return StandInError(LOST) if handle in lost else 1000

    nvml = StandIn(count=2, nvmlDeviceGetPowerUsage=power)
    probe = GpuProbe(nvml, pcie_thread=False)
    assert [row.device for row in probe.read(0.0)] == [0, 1]
    lost.add("handle 0")
    assert [row.device for row in probe.read(0.2)] == [1], (
        "no row for a GPU that is gone, not one of absent values"
    )
    calls = sum("handle 0" in arguments for _, arguments in nvml.calls)
    assert [row.device for row in probe.read(0.4)] == [1]
    assert sum("handle 0" in arguments for _, arguments in nvml.calls) == calls
    assert "it is lost" in why(probe)["everything of GPU 0"]
    probe.close()


def test_a_gpu_that_may_not_be_opened() -> None:
    handles = {0: StandInError(NO_PERMISSION), 1: "handle 1"}
    probe = GpuProbe(StandIn(count=2, nvmlDeviceGetHandleByIndex=handles.get), pcie_thread=False)
    assert [row.device for row in probe.read(0.0)] == [1]
    assert why(probe)["everything of GPU 0"] == "this user may not read it"


def test_clock_reasons_in_words() -> None:
    assert clock_reasons(0) == ""
    assert clock_reasons(0x1) == "idle"
    assert clock_reasons(0x24) == "power_cap,thermal"
    assert clock_reasons(0xC0) == "hardware_thermal,power_brake"
    assert clock_reasons(0x800) == "other" and clock_reasons(0x804) == "power_cap,other"


@given(st.integers(0, 2**64 - 1))
@settings(deadline=None)
def test_clock_reasons_tell_every_bit(bits: int) -> None:
    words = clock_reasons(bits).split(",") if bits else []
    assert sorted(words) == sorted(
        [word for bit, word in CLOCK_REASONS.items() if bits & bit] + (["other"] if bits >> 11 else [])
    )


def test_pcie_traffic_of_gpus_without_gpm_comes_from_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pcie, "PERIOD_S", 0.01)
    nvml = StandIn(nvmlDeviceGetPcieThroughput=lambda handle, counter: (3, 4)[counter])
    probe = GpuProbe(nvml)
    row = until(
        lambda: (row := gpu_row(probe, 0.0)).pcie_sent_bytes_per_s is not None and row, "PCIe traffic"
    )
    assert (row.pcie_sent_bytes_per_s, row.pcie_received_bytes_per_s) == (3000, 4000)
    probe.close()
    calls = nvml.times("nvmlDeviceGetPcieThroughput")
    assert nvml.calls[-1][0] == "nvmlShutdown" and calls >= 2, "the thread is over before NVML is"


def test_switched_off_pcie_traffic_is_told() -> None:
    probe = GpuProbe(StandIn(), pcie_thread=False)
    assert why(probe)["PCIe traffic"] == "switched off"


# --- the real binding over a stand-in library -----------------------------------------------------------------------------------

HOW = """
import json, sys
from headrace.probe.gpus import GpuProbe, gpu_facts
from headrace.probe.nvml import pcie
import pynvml
pcie.PERIOD_S = 0.01
facts = gpu_facts()
probe = GpuProbe()
readings = []
while len(readings) < 7 or all(row[1].get("pcie_sent_bytes_per_s") is None for rows in readings for row in rows if row[1]["device"] == 1):
    rows = probe.read(len(readings) * 0.2)
    readings.append([(type(row).__name__, row._asdict()) for row in rows])
    pcie.threading.Event().wait(0.01)
unseen = {item.what: item.why for item in probe.unseen()}
probe.close()
json.dump({"facts": facts, "readings": readings, "unseen": unseen, "open": pynvml.nvmlLib.stand_in_open_count()}, sys.stdout)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("the stand-in library needs a C compiler on Linux")
    folder = tmp_path_factory.mktemp("nvml")
    source, target = Path(__file__).with_name("nvml_stand_in.c"), folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", target, source], check=True)
    yield folder


@pytest.fixture(scope="module")
def told(library: Path) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", HOW], env=os.environ | {"LD_LIBRARY_PATH": str(library)},
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def rows_of(told: Any, device: int, kind: str = "GpuRow") -> list[Any]:
    return [row for rows in told["readings"] for name, row in rows if (name, row["device"]) == (kind, device)]


def test_the_binding_reads_a_whole_gpu(told: Any) -> None:
    first, second = rows_of(told, 0)[:2]
    assert first == {
        "t_s": 0.0, "window_s": 0.0, "device": 0, "busy_ratio": 0.37, "busy_window_s": None, "memory_busy_ratio": 0.12,
        "decoder_ratio": 0.91, "encoder_ratio": 0.0, "jpeg_ratio": 0.05,
        "memory_used_bytes": 3 << 30, "memory_total_bytes": 80 << 30,
        "sm_active_ratio": None, "sm_occupancy_ratio": None, "tensor_ratio": None, "dram_ratio": None,
        "sm_clock_mhz": 345, "sm_clock_max_mhz": 1980, "clock_reasons": "power_cap,thermal,other",
        "power_w": 123.456, "power_limit_w": 700.0, "temperature_c": 61,
        "pcie_sent_bytes_per_s": None, "pcie_received_bytes_per_s": None,
        "pcie_generation": 1, "pcie_generation_max": 5, "pcie_width": 8, "pcie_width_max": 16, "emulated": False,
    }  # fmt: skip
    assert (second["t_s"], second["window_s"]) == (0.2, 0.2)
    assert (second["busy_ratio"], second["busy_window_s"]) == pytest.approx((0.15, 0.2)), (
        "mean of 0, 10, 20 and 30 %"
    )
    assert second["memory_busy_ratio"] == pytest.approx(0.075)
    assert second["temperature_c"] is None and second["decoder_ratio"] is None


def test_the_binding_reads_gpm(told: Any) -> None:
    for row in rows_of(told, 0)[1:]:
        assert (row["sm_active_ratio"], row["sm_occupancy_ratio"], row["dram_ratio"]) == (0.405, 0.25, 0.555)
        assert row["tensor_ratio"] is None, "a counter that this GPU lacks"
        assert (row["pcie_sent_bytes_per_s"], row["pcie_received_bytes_per_s"]) == (100 * 2**20, 5 * 2**19)


def test_the_binding_reads_processes(told: Any) -> None:
    processes = rows_of(told, 0, "GpuProcessRow")
    assert [(row["pid"], row["memory_bytes"], row["busy_ratio"]) for row in processes[:4]] == [
        (1, 2 << 30, None), (2147483600, None, None), (1, 2 << 30, 0.64), (2147483600, None, 0.0)
    ]  # fmt: skip
    assert rows_of(told, 1, "GpuProcessRow") == rows_of(told, 2, "GpuProcessRow") == []
    assert (
        "process 2147483600 is not one of this machine's"
        in told["unseen"]["processes' true numbers of GPU 0"]
    )
    assert "shows none" in told["unseen"]["processes of GPU 1"]


def test_the_binding_over_an_old_gpu(told: Any) -> None:
    rows = rows_of(told, 1)
    assert {row["busy_ratio"] for row in rows} == {0.37} and {row["busy_window_s"] for row in rows} == {None}
    assert {row["decoder_ratio"] for row in rows} == {row["sm_active_ratio"] for row in rows} == {None}
    traffic = {(row["pcie_sent_bytes_per_s"], row["pcie_received_bytes_per_s"]) for row in rows}
    assert traffic - {(None, None)} == {(11_000, 22_000)}
    assert told["unseen"]["samples of the busy share of GPU 1"] == "not offered by this GPU or driver"
    assert told["unseen"]["SM activity (GPM) of GPU 1"] == "counted by Hopper and newer GPUs only"


def test_the_binding_over_a_divided_gpu(told: Any) -> None:
    assert {row["busy_ratio"] for row in rows_of(told, 2)} == {None}
    assert rows_of(told, 2)[0]["memory_used_bytes"] == 3 << 30
    for what in ("busy share", "video decoder", "SM activity (GPM)"):
        assert told["unseen"][f"{what} of GPU 2"] == "not offered while the GPU is divided (MIG)"
    assert told["unseen"]["compute processes of GPU 2"] == "this user may not read it"


def test_the_binding_over_a_gpu_that_is_lost(told: Any) -> None:
    assert [row["t_s"] for row in rows_of(told, 3)] == [0.0, 0.2]
    assert told["unseen"]["everything of GPU 3"].startswith("it is lost")


def test_facts_for_the_manifest(told: Any) -> None:
    facts = told["facts"]
    assert facts[0] == {
        "device": 0, "name": "Stand-in", "memory_bytes": 80 << 30, "driver": "999.1", "sm_clock_max_mhz": 1980,
        "pcie_generation_max": 5, "pcie_width_max": 16, "mig": False, "gpm": True,
    }  # fmt: skip
    assert [(one["mig"], one["gpm"]) for one in facts[1:]] == [(None, False), (True, None), (False, False)]
    assert told["open"] == 0, "every opening was closed"


# --- a real GPU -------------------------------------------------------------------------------------------------------------


def has_driver() -> bool:
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return bool(gpu_facts())


@pytest.mark.gpu
@pytest.mark.skipif(not has_driver(), reason="no NVIDIA driver with a GPU here")
def test_a_real_gpu_gives_plausible_figures() -> None:
    probe = GpuProbe()
    readings: list[GpuRow] = []
    clock = iter(range(10_000))

    def seen() -> bool:
        readings.extend(row for row in probe.read(next(clock) * 0.2) if isinstance(row, GpuRow))
        return any(row.busy_ratio is not None for row in readings) and len(readings) >= 30

    until(seen, "a busy share")
    first = readings[0]
    assert first.memory_total_bytes is not None and first.memory_used_bytes is not None
    assert first.memory_total_bytes > 2**30 and 0 <= first.memory_used_bytes <= first.memory_total_bytes
    assert first.sm_clock_max_mhz is not None and 300 < first.sm_clock_max_mhz < 5000
    for row in readings:
        for share in (row.busy_ratio, row.memory_busy_ratio, row.sm_active_ratio, row.dram_ratio):
            assert share is None or 0 <= share <= 1
        assert row.power_w is None or 1 < row.power_w < 3000
        assert row.busy_window_s is None or 0 < row.busy_window_s < 60
        assert row.pcie_sent_bytes_per_s is None or math.isfinite(row.pcie_sent_bytes_per_s)
    probe.close()
