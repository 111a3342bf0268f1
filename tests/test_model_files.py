"""Files that are no model are refused in one sentence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import tiny_models as tiny
from headrace.errors import ModelError
from headrace.models.files import available_memory, load_model
from headrace.models.opening import open_runner
from headrace.records.recipe import Recipe, RecipeFile

SMALL = Recipe(width=4, height=4, scale=1.0)


@pytest.mark.parametrize(
    ("name", "data", "part"),
    [
        ("a.pt", b"PK\x03\x04rest", "export it to ONNX with torch.onnx.export"),
        ("renamed.onnx", b"PK\x03\x04rest", "a PyTorch file"),
        ("old.onnx", b"\x80\x02\x8a\nl\xfc", "a PyTorch file"),
        ("a.safetensors", b"\x10\0\0\0\0\0\0\0{", "weights without a graph"),
        ("a.tflite", b"\x1c\0\0\0TFL3", "tf2onnx.convert --tflite"),
        ("a.onnx", b"\x89HDF\r\n\x1a\n", "Keras"),
        ("a.engine", b"ftrt", "TensorRT engine"),
        ("a.gguf", b"GGUF", "GGUF"),
        ("a.ort", b"\0\0\0\0ORTM", "an ORT file"),
        ("lfs.onnx", b"version https://git-lfs.github.com/spec/v1\noid", "git lfs pull"),
        ("empty.onnx", b"", "is empty"),
        ("text.onnx", b"<!DOCTYPE html><html>404</html>", "text.onnx"),
        ("noise.onnx", bytes(range(256)), "noise.onnx"),
    ],
)
def test_files_that_are_no_onnx(tmp_path: Path, name: str, data: bytes, part: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(ModelError) as caught:
        load_model(path)
    assert part in str(caught.value) and str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_paths_that_are_no_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no model file .*gone\.onnx"):
        load_model(tmp_path / "gone.onnx")
    with pytest.raises(ModelError, match=r"is a folder.*holds no"):
        load_model(tmp_path)
    tiny.saved(tiny.classifier(), tmp_path, "here.onnx")
    with pytest.raises(ModelError, match=r"is a folder.*here\.onnx"):
        load_model(tmp_path)


def test_cut_models_are_refused(tmp_path: Path) -> None:
    whole = tiny.classifier().SerializeToString()
    path = tmp_path / "cut.onnx"
    file = RecipeFile(recipe=replace(SMALL, width=8, height=8))
    for length in range(1, len(whole), 5):
        path.write_bytes(whole[:length])
        with pytest.raises(ModelError, match=r"cut\.onnx"):
            open_runner(path, file, accelerator="cpu", threads=1)


def test_models_larger_than_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tiny.saved(tiny.classifier(), tmp_path)
    monkeypatch.setattr("headrace.models.files.available_memory", lambda: 10)
    with pytest.raises(ModelError, match="10 B of memory are free"):
        load_model(path)


def test_memory_is_the_least_of_machine_and_group(tmp_path: Path) -> None:
    assert available_memory(tmp_path) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable:       1000 kB\n")
    assert available_memory(tmp_path) == 1_024_000
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("max\n")
    assert available_memory(tmp_path) == 1_024_000
    (group / "memory.max").write_text("5000\n")
    (group / "memory.current").write_text("6000\n")
    assert available_memory(tmp_path) == 0
