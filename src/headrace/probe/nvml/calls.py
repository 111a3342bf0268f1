"""Opening NVML, and asking one GPU something without being hurt by a refusal."""

from __future__ import annotations

import importlib
from typing import Any, TypeAlias

from headrace.probe.unseen import UnseenOnce

Way: TypeAlias = tuple[Any, ...]
"""A function of the binding by name, and its arguments after the device."""

# Return codes of NVML (nvml.h, nvmlReturn_t).
_SUCCESS, _NOT_SUPPORTED, _NO_PERMISSION, _NOT_FOUND, _INSUFFICIENT_SIZE = 0, 3, 4, 6, 7
_DRIVER_NOT_LOADED, _LIBRARY_NOT_FOUND, _FUNCTION_NOT_FOUND = 9, 12, 13
_GPU_IS_LOST, _RESET_REQUIRED, _VERSION_MISMATCH = 15, 16, 18

_NOTHING_NEW = frozenset({_SUCCESS, _NOT_FOUND, _INSUFFICIENT_SIZE})
"""No refusals: nothing since the last call (the binding raises even 0 then), or a list that grew between its two calls."""

_WHY_NO_LIBRARY = {
    _LIBRARY_NOT_FOUND: "no NVIDIA driver here (libnvidia-ml.so.1 not found)",
    _DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded, or this container was started without GPUs",
    _NO_PERMISSION: "this user may not open /dev/nvidiactl",
    _VERSION_MISMATCH: "the driver's kernel module and library differ in version; restart the machine",
}
_TOO_OLD = "the driver is too old for it"
_WHY_REFUSED = {
    _NOT_SUPPORTED: "not offered by this GPU or driver",
    _NO_PERMISSION: "this user may not read it",
    _FUNCTION_NOT_FOUND: _TOO_OLD,
}
_WHY_LOST = {
    _GPU_IS_LOST: "it is lost: the driver cannot reach it any more; the kernel log (dmesg, Xid) says more",
    _RESET_REQUIRED: "it hangs and needs a reset; the kernel log (dmesg, Xid) says more",
}


class NoNvml(Exception):
    """NVML cannot be opened; the text says why."""


def open_nvml(nvml: Any | None = None) -> Any:
    """The binding, initialised; whoever opens it calls its `nvmlShutdown`. Raises NoNvml."""
    try:
        binding: Any = nvml or importlib.import_module("pynvml")
    except ImportError:
        raise NoNvml("the package nvidia-ml-py is not installed") from None
    try:
        binding.nvmlInit()
    except binding.NVMLError as error:
        raise NoNvml(_WHY_NO_LIBRARY.get(error.value, f"NVML does not start: {error}")) from None
    return binding


class Card:
    """One GPU. `ask` never raises: it gives None and tells `unseen` once."""

    def __init__(self, nvml: Any, number: int, unseen: UnseenOnce) -> None:
        self.nvml = nvml
        self.number = number
        self.lost = False
        self.mig: bool | None = None
        self._unseen = unseen
        self._errors = (nvml.NVMLError, getattr(nvml, "NVMLLibraryMismatchError", nvml.NVMLError))
        self._refused: dict[tuple[str, str], str] = {}
        self._handle = self.call("everything", "nvmlDeviceGetHandleByIndex", number)
        self.lost = self.lost or self._handle is None
        if (mode := self.ask("MIG mode", ("nvmlDeviceGetMigMode",), tell=False)) is not None:
            self.mig = bool(mode[0])

    def ask(self, what: str, *ways: Way, tell: bool = True) -> Any:
        """The answer of the first of `ways` that has one; None where none has."""
        reasons = []
        for name, *arguments in ways:
            value, why = self._try(what, name, (self._handle, *arguments))
            if why is None:
                return value
            reasons.append(why)
        if tell:
            self.tell(what, next((why for why in reasons if why != _TOO_OLD), _TOO_OLD))
        return None

    def call(self, what: str, name: str, *arguments: Any) -> Any:
        """Like `ask`, for a function that does not take the device first."""
        value, why = self._try(what, name, arguments)
        if why is not None:
            self.tell(what, why)
        return value

    def tell(self, what: str, why: str) -> None:
        """Adds to what is unseen of this GPU."""
        self._unseen.add(f"{what} of GPU {self.number}", why)

    def _try(self, what: str, name: str, arguments: tuple[Any, ...]) -> tuple[Any, str | None]:
        """The answer and None; or None and why it was refused. What is refused for good is not asked again."""
        if self.lost:
            return None, None
        if (what, name) in self._refused:
            return None, self._refused[what, name]
        try:
            return getattr(self.nvml, name)(*arguments), None
        except (*self._errors, AttributeError) as error:
            return None, self._reason(what, name, error)

    def _reason(self, what: str, name: str, error: Exception) -> str | None:
        code = getattr(error, "value", _FUNCTION_NOT_FOUND)
        if code in _NOTHING_NEW:
            return None
        if code in _WHY_LOST:
            self.lost = True
            self.tell("everything", _WHY_LOST[code])
            return None
        if code not in _WHY_REFUSED:
            return f"NVML: {error}"
        why = _WHY_REFUSED[code]
        if code == _NOT_SUPPORTED and self.mig:
            why = "not offered while the GPU is divided (MIG)"
        self._refused[what, name] = why
        return why
