"""GPUs through NVML: what each is doing, and which processes are on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from headrace.probe.nvml.calls import Card, NoNvml, Way, open_nvml
from headrace.probe.nvml.gpm import Gpm, gpm_offered
from headrace.probe.nvml.pcie import PcieMeter
from headrace.probe.nvml.processes import Processes
from headrace.probe.nvml.samples import BUSY, MEMORY_BUSY, SampledShare
from headrace.probe.probe import Row
from headrace.probe.unseen import UnseenOnce
from headrace.records.capture import Unseen
from headrace.records.rows.gpu import GpuRow

SLOW_PERIOD_S = 0.95
"""What changes slowly or costs the driver more is asked this often; the rows between have None there. A little under a second, so
that a reading that comes early does not put it off to the next one."""
NO_NEW_SAMPLE_S = 2.0
"""NVML's own periods are 1/6 to 1 s; samples that stay away for longer than this are not coming back."""

_SM_CLOCK, _CHIP_SENSOR, _MEMORY_VERSION_2 = 1, 0, 0x02000028
_MEMORY: tuple[Way, ...] = (
    ("nvmlDeviceGetMemoryInfo", _MEMORY_VERSION_2),
    ("nvmlDeviceGetMemoryInfo",),
)
_TEMPERATURE: tuple[Way, ...] = (
    ("nvmlDeviceGetTemperatureV", _CHIP_SENSOR),
    ("nvmlDeviceGetTemperature", _CHIP_SENSOR),
)
_REASONS: tuple[Way, ...] = (
    ("nvmlDeviceGetCurrentClocksEventReasons",),
    ("nvmlDeviceGetCurrentClocksThrottleReasons",),
)

CLOCK_REASONS = {
    0x001: "idle",
    0x002: "clocks_set",
    0x004: "power_cap",
    0x008: "hardware_slowdown",
    0x010: "sync_boost",
    0x020: "thermal",
    0x040: "hardware_thermal",
    0x080: "power_brake",
    0x100: "display_clock",
    0x200: "board_limit",
    0x400: "reliability",
}
"""Bit -> word (nvml.h, nvmlClocksEventReason*). `power_cap` is normal on a busy card."""

_NOTHING_READ = GpuRow._make([None] * len(GpuRow._fields))._replace(emulated=False)


class GpuProbe:
    """`GpuRow` at each reading and `GpuProcessRow` about once a second, for every GPU that NVML shows.

    `pcie_thread=False` leaves out the PCIe traffic of GPUs without GPM, which costs a thread and two waits of some 20 ms a second.
    `nvml` is the binding (pynvml) or something that behaves like it.
    """

    name = "gpus"

    def __init__(self, nvml: Any | None = None, *, period_s: float = 0.2, pcie_thread: bool = True) -> None:
        self.period_s = period_s
        self._unseen = UnseenOnce(self.name)
        self._nvml: Any | None = None
        self._gpus: list[_Gpu] = []
        try:
            self._nvml = open_nvml(nvml)
            self._gpus = [_Gpu(card) for card in _cards(self._nvml, self._unseen)]
        except NoNvml as error:
            self._unseen.add("GPUs", str(error))
        without_gpm = [gpu.card for gpu in self._gpus if not gpu.gpm.offered and not gpu.card.lost]
        self._pcie = PcieMeter(without_gpm if pcie_thread else ())
        if without_gpm and not pcie_thread:
            self._unseen.add("PCIe traffic", "switched off")

    def read(self, now_s: float) -> Iterable[Row]:
        for gpu in self._gpus:
            if not gpu.card.lost:
                yield from gpu.read(now_s, self._pcie)

    def unseen(self) -> Sequence[Unseen]:
        return self._unseen.all()

    def close(self) -> None:
        self._pcie.close()
        for gpu in self._gpus:
            gpu.gpm.close()
        self._gpus = []
        if self._nvml is not None:
            _shut(self._nvml)
            self._nvml = None


def gpu_facts(nvml: Any | None = None) -> list[dict[str, Any]]:
    """Each GPU's name and what it offers, for a manifest; empty where there is no NVIDIA driver. What is not known is None."""
    try:
        library = open_nvml(nvml)
    except NoNvml:
        return []
    try:
        return [_facts(card) for card in _cards(library, UnseenOnce("gpus"))]
    except NoNvml:
        return []
    finally:
        _shut(library)


def _cards(nvml: Any, unseen: UnseenOnce) -> list[Card]:
    """Raises NoNvml when there is none."""
    try:
        count = int(nvml.nvmlDeviceGetCount())
    except nvml.NVMLError as error:
        raise NoNvml(f"NVML does not tell how many GPUs there are: {error}") from None
    if count == 0:
        raise NoNvml("there is an NVIDIA driver, and it shows no GPU here")
    return [Card(nvml, number, unseen) for number in range(count)]


def _shut(nvml: Any) -> None:
    try:
        nvml.nvmlShutdown()
    except nvml.NVMLError:
        pass  # The driver went away first.


def _facts(card: Card) -> dict[str, Any]:
    memory = card.ask("memory", *_MEMORY)
    return {
        "device": card.number,
        "name": card.ask("name", ("nvmlDeviceGetName",)),
        "memory_bytes": None if memory is None else int(memory.total),
        "driver": card.call("driver version", "nvmlSystemGetDriverVersion"),
        "sm_clock_max_mhz": card.ask("highest SM clock", ("nvmlDeviceGetMaxClockInfo", _SM_CLOCK)),
        "pcie_generation_max": card.ask("PCIe link", ("nvmlDeviceGetMaxPcieLinkGeneration",)),
        "pcie_width_max": card.ask("PCIe link", ("nvmlDeviceGetMaxPcieLinkWidth",)),
        "mig": card.mig,
        "gpm": gpm_offered(card),
    }


class _Gpu:
    """One GPU between readings."""

    def __init__(self, card: Card) -> None:
        self.card = card
        self.gpm = Gpm(card)
        self._busy = SampledShare(card, "samples of the busy share", BUSY)
        self._memory_busy = SampledShare(card, "samples of the memory's busy share", MEMORY_BUSY)
        self._processes = Processes(card)
        self._sampled_s: float | None = None
        self._read_s: float | None = None
        self._slow_s: float | None = None
        self._fixed = {
            "sm_clock_max_mhz": card.ask("highest SM clock", ("nvmlDeviceGetMaxClockInfo", _SM_CLOCK)),
            "pcie_generation_max": card.ask("PCIe link", ("nvmlDeviceGetMaxPcieLinkGeneration",)),
            "pcie_width_max": card.ask("PCIe link", ("nvmlDeviceGetMaxPcieLinkWidth",)),
        }

    def read(self, now_s: float, pcie: PcieMeter) -> Iterator[Row]:
        busy = self._busy_shares(now_s)
        values = self._fixed | busy | _clocks_and_power(self.card) | self._traffic(pcie)
        slow_window_s = 0.0 if self._slow_s is None else now_s - self._slow_s
        slow = self._slow_s is None or slow_window_s >= SLOW_PERIOD_S
        if slow:
            self._slow_s = now_s
            values |= _engines_memory_link(self.card)
            processes = tuple(self._processes.read(now_s, slow_window_s, busy["busy_ratio"]))
        if self.card.lost:
            return
        window_s = 0.0 if self._read_s is None else now_s - self._read_s
        self._read_s = now_s
        yield _NOTHING_READ._replace(t_s=now_s, window_s=window_s, device=self.card.number, **values)
        if slow:
            yield from processes

    def _busy_shares(self, now_s: float) -> dict[str, Any]:
        """Mean of the driver's samples since the last reading; where it keeps none, its latest figure, of a window it does not tell."""
        busy, memory = self._busy.read(), self._memory_busy.read()
        if busy is not None:
            self._sampled_s = now_s
            return {
                "busy_ratio": busy[0],
                "busy_window_s": busy[1],
                "memory_busy_ratio": None if memory is None else memory[0],
            }
        nothing = {"busy_ratio": None, "busy_window_s": None, "memory_busy_ratio": None}
        if self._sampled_s is not None and now_s - self._sampled_s < NO_NEW_SAMPLE_S:
            return nothing
        rates = self.card.ask("busy share", ("nvmlDeviceGetUtilizationRates",))
        if rates is None:
            return nothing
        return nothing | {"busy_ratio": _share(rates.gpu), "memory_busy_ratio": _share(rates.memory)}

    def _traffic(self, pcie: PcieMeter) -> dict[str, Any]:
        if self.gpm.offered:
            reading = self.gpm.read()
            return {} if reading is None else reading._asdict()
        traffic = pcie.take(self.card.number)
        if traffic is None:
            return {}
        return {"pcie_sent_bytes_per_s": traffic.sent, "pcie_received_bytes_per_s": traffic.received}


def _clocks_and_power(card: Card) -> dict[str, Any]:
    milliwatts = card.ask("power", ("nvmlDeviceGetPowerUsage",))
    reasons = card.ask("clock reasons", *_REASONS)
    return {
        "sm_clock_mhz": card.ask("SM clock", ("nvmlDeviceGetClockInfo", _SM_CLOCK)),
        "clock_reasons": None if reasons is None else clock_reasons(int(reasons)),
        "power_w": None if milliwatts is None else milliwatts / 1000,
    }


def _engines_memory_link(card: Card) -> dict[str, Any]:
    memory = card.ask("memory", *_MEMORY)
    limit = card.ask("power limit", ("nvmlDeviceGetEnforcedPowerLimit",))
    return {
        "decoder_ratio": _engine(card, "video decoder", "nvmlDeviceGetDecoderUtilization"),
        "encoder_ratio": _engine(card, "video encoder", "nvmlDeviceGetEncoderUtilization"),
        "jpeg_ratio": _engine(card, "JPEG decoder", "nvmlDeviceGetJpgUtilization"),
        "memory_used_bytes": None if memory is None else int(memory.used),
        "memory_total_bytes": None if memory is None else int(memory.total),
        "power_limit_w": None if limit is None else limit / 1000,
        "temperature_c": card.ask("temperature", *_TEMPERATURE),
        "pcie_generation": card.ask("PCIe link", ("nvmlDeviceGetCurrPcieLinkGeneration",)),
        "pcie_width": card.ask("PCIe link", ("nvmlDeviceGetCurrPcieLinkWidth",)),
    }


def _engine(card: Card, what: str, function: str) -> float | None:
    found = card.ask(what, (function,))
    return None if found is None else _share(found[0])


def _share(percent: int) -> float | None:
    return percent / 100 if 0 <= percent <= 100 else None


def clock_reasons(bits: int) -> str:
    """The reasons in words with commas between; empty: nothing holds the clock back."""
    words = [word for bit, word in CLOCK_REASONS.items() if bits & bit]
    if bits & ~sum(CLOCK_REASONS):
        words.append("other")
    return ",".join(words)
