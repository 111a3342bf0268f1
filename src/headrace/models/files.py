"""Opens a model file, or says in one sentence why it is none."""

from __future__ import annotations

from pathlib import Path

import onnx

from headrace.errors import ModelError
from headrace.models.front import weights_outside
from headrace.units import format_bytes

_EXPORTS = {
    (".pt", ".pth", ".ckpt", ".bin"): "a PyTorch file: export it to ONNX with torch.onnx.export",
    (
        ".safetensors",
    ): "weights without a graph: export the model to ONNX with `optimum-cli export onnx` or torch.onnx.export",
    (".h5", ".keras", ".pb"): "a Keras or TensorFlow file: export it to ONNX with tf2onnx",
    (".tflite",): "a TensorFlow Lite file: export it to ONNX with `python -m tf2onnx.convert --tflite`",
    (
        ".engine",
        ".plan",
        ".trt",
    ): "a TensorRT engine, which fits one GPU only: give the ONNX file it was built from",
    (".ort",): "an ORT file, whose graph cannot be extended: give the ONNX file it was made from",
    (".mlmodel", ".mlpackage"): "a Core ML file: export the original model to ONNX",
    (".gguf",): "a GGUF file: export the original model to ONNX",
}
_BEGINNINGS = (
    (0, b"PK\x03\x04", ".pt"),
    (0, b"\x80\x02", ".pt"),
    (0, b"\x80\x04", ".pt"),
    (0, b"\x89HDF", ".h5"),
    (4, b"TFL3", ".tflite"),
    (4, b"ORTM", ".ort"),
    (0, b"GGUF", ".gguf"),
)


def load_model(path: Path) -> onnx.ModelProto:
    """The graph of the ONNX file at `path`; weights in files beside it are checked and left there.

    Raises ModelError naming the path when there is no such file, it is no ONNX, or it needs more memory than is free.
    """
    if not path.exists():
        raise ModelError(f"there is no model file {path}: check --model")
    if path.is_dir():
        found = sorted(entry.name for entry in path.glob("*.onnx"))
        hint = f"give the file, such as {path / found[0]}" if found else "it holds no .onnx file"
        raise ModelError(f"{path} is a folder and no model file: {hint}")
    _check_kind(path)
    _check_memory(path, path.stat().st_size)
    try:
        model = onnx.load(path, format="protobuf", load_external_data=False)
    except Exception as error:  # protobuf raises a class of its own for broken files
        raise ModelError(
            f"{path} cannot be read as ONNX ({type(error).__name__}): is it complete?"
        ) from error
    if not model.graph.node or not model.opset_import:
        raise ModelError(f"{path} holds no ONNX graph: is it complete, and is it a model?")
    _check_weights(path, model)
    return model


def _check_kind(path: Path) -> None:
    with path.open("rb") as file:
        begin = file.read(16)
    if not begin:
        raise ModelError(f"{path} is empty: copy the model again")
    if begin.startswith(b"version https://"):
        raise ModelError(f"{path} is a Git LFS pointer and not the model: run `git lfs pull`")
    suffix = next(
        (ending for at, magic, ending in _BEGINNINGS if begin[at : at + len(magic)] == magic),
        path.suffix.lower(),
    )
    for endings, what in _EXPORTS.items():
        if suffix in endings:
            raise ModelError(f"{path} is {what}")


def _check_weights(path: Path, model: onnx.ModelProto) -> None:
    total = path.stat().st_size
    for name in weights_outside(model):
        beside = path.parent / name
        if not beside.resolve().is_relative_to(path.parent.resolve()):
            raise ModelError(
                f"{path} keeps weights in {name!r}, outside its own folder: save it again with the weights beside it"
            )
        if not beside.is_file():
            raise ModelError(
                f"{path} keeps its weights in {beside}, which is missing: copy that file too, under this name"
            )
        total += beside.stat().st_size
    _check_memory(path, total)


def _check_memory(path: Path, size: int) -> None:
    free = available_memory()
    if free is not None and size > free:
        raise ModelError(
            f"{path} and its weights are {format_bytes(size)} and {format_bytes(free)} of memory are free: "
            "free memory, raise the container's limit or take a smaller model"
        )


def available_memory(root: Path = Path("/")) -> int | None:
    """Bytes this process may still take: the machine's and its control group's; None where that is not known."""
    found = [value for value in (_machine_memory(root), _group_memory(root)) if value is not None]
    return min(found, default=None)


def _machine_memory(root: Path) -> int | None:
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)
    except (OSError, ValueError, IndexError):
        return None


def _group_memory(root: Path) -> int | None:
    try:
        limit = int((root / "sys/fs/cgroup/memory.max").read_text())
        return max(0, limit - int((root / "sys/fs/cgroup/memory.current").read_text()))
    except (OSError, ValueError):
        return None
