"""Assets by name: nothing unsafe is unpickled or unpacked, nothing is fetched twice, and the model answers rightly."""

from __future__ import annotations

import collections
import hashlib
import io
import json
import os
import pickle
import shutil
import struct
import sys
import tarfile
import threading
import types
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from PIL import Image

from headrace.errors import AssetError
from headrace.lab.assets import Assets, __main__, catalogue, fetch, library, load
from headrace.lab.assets.archives import Keep, unpack
from headrace.lab.assets.commands import Outcome, run_command
from headrace.lab.assets.efficientnet_lite import build, same_padding
from headrace.lab.assets.files import only_one
from headrace.lab.assets.lock import Package, packages
from headrace.lab.assets.registries import download
from headrace.lab.assets.torch_weights import read_weights

FETCH_MODULE = sys.modules["headrace.lab.assets.fetch"]
PACKAGE_FOLDER = Path(library.__file__).parent


@pytest.fixture(scope="module")
def assets() -> Assets:
    return load()


# --- weights ---------------------------------------------------------------------------------------------------------


class _Evil:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch '{self.marker}'",)


def _torch_file(
    path: Path, monkeypatch: pytest.MonkeyPatch, shape: Sequence[int], strides: Sequence[int]
) -> None:
    """A weights file of 24 numbers as torch would write it, by stand-ins for the two torch names it mentions."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    kind = type("FloatStorage", (), {"__module__": "torch"})

    def rebuild(*parts: object) -> object:
        raise AssertionError("only its name is written")

    rebuild.__module__, rebuild.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    torch.FloatStorage, torch._utils, utils._rebuild_tensor_v2 = kind, utils, rebuild  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch._utils", utils)

    class Storage:
        pass

    class Tensor:
        def __reduce__(self) -> tuple[Any, ...]:
            return rebuild, (Storage(), 0, tuple(shape), tuple(strides), False, collections.OrderedDict())

    class Pickler(pickle.Pickler):
        def persistent_id(self, thing: object) -> object:
            return ("storage", kind, "key0", "cpu", 24, None) if isinstance(thing, Storage) else None

    with path.open("wb") as file:
        for header in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}):
            pickle.dump(header, file, protocol=2)
        Pickler(file, protocol=2).dump(collections.OrderedDict(w=Tensor()))
        pickle.dump(["key0"], file, protocol=2)
        file.write(struct.pack("<q", 24) + np.arange(24, dtype="<f4").tobytes())


def test_a_pickle_that_runs_a_command_is_refused_before_it_runs(tmp_path: Path) -> None:
    marker, weights = tmp_path / "ran", tmp_path / "evil.pth"
    weights.write_bytes(pickle.dumps(_Evil(marker), protocol=2))
    with pytest.raises(AssetError, match=r"asks for (posix|nt)\.system"):
        read_weights(weights)
    assert not marker.exists()


@pytest.mark.parametrize("content", [b"", b"not a pickle", pickle.dumps(1), pickle.dumps({"a": [1]}) * 5])
def test_other_files_are_no_weights(tmp_path: Path, content: bytes) -> None:
    weights = tmp_path / "weights.pth"
    weights.write_bytes(content)
    with pytest.raises(AssetError, match="not a readable torch weights file"):
        read_weights(weights)


def test_tensors_are_read_with_their_strides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = tmp_path / "weights.pth"
    _torch_file(weights, monkeypatch, (2, 3, 4), (1, 8, 2))
    (read,) = read_weights(weights).values()
    assert np.array_equal(read, np.arange(24, dtype=np.float32).reshape(3, 4, 2).transpose(2, 0, 1))


@pytest.mark.parametrize(
    ("shape", "strides"),
    [((25,), (1,)), ((2,), (24,)), ((2,), (-1,)), ((5, 5), (0, 1)), ((2, 2), (1,)), ((0,), (1,))],
)
def test_a_tensor_that_reaches_outside_its_numbers_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    weights = tmp_path / "weights.pth"
    _torch_file(weights, monkeypatch, shape, strides)
    with pytest.raises(AssetError, match="not a readable torch weights file"):
        read_weights(weights)


# --- the model -------------------------------------------------------------------------------------------------------


def _probabilities(session: onnxruntime.InferenceSession, photo: Path) -> np.ndarray:
    image = Image.open(photo).convert("RGB")
    side = 0.875 * min(image.size)
    left, top = (image.width - side) / 2, (image.height - side) / 2
    small = image.resize((224, 224), Image.Resampling.BICUBIC, box=(left, top, left + side, top + side))
    tensor = (np.asarray(small, np.float32).transpose(2, 0, 1)[None] - 127) / 128
    logits = session.run(["logits"], {"input": tensor})[0][0]
    weights = np.exp(logits - logits.max())
    return np.asarray(weights / weights.sum())


@pytest.fixture(scope="module")
def converted(assets: Assets) -> bytes:
    """The model as today's converter writes it, which need not be the one in the cache."""
    return bytes(build(read_weights(assets.root / catalogue.WEIGHTS)).SerializeToString())


@pytest.fixture(scope="module")
def session(converted: bytes) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(converted, providers=["CPUExecutionProvider"])


def test_the_cache_holds_what_the_converter_writes(assets: Assets, converted: bytes) -> None:
    same = onnx.load(str(assets.model)) == onnx.load_from_string(converted)
    assert same, "raise _CONVERTER in fetch.py when the graph changes"


def test_coffee_is_espresso(assets: Assets, session: onnxruntime.InferenceSession) -> None:
    labels = json.loads(assets.labels.read_text("utf-8"))
    (coffee,) = (path for path in assets.photos if path.name == "coffee.png")
    found = _probabilities(session, coffee)
    assert labels[int(found.argmax())] == "espresso"
    assert found.max() == pytest.approx(0.951, abs=0.002)


def test_every_promised_answer_is_the_first_one_by_far(
    assets: Assets, session: onnxruntime.InferenceSession
) -> None:
    labels = json.loads(assets.labels.read_text("utf-8"))
    assert len(assets.answers) >= 8
    for photo, label in assets.answers.items():
        found = _probabilities(session, Path(photo))
        second, first = np.argsort(found)[-2:]
        assert labels[first] == label, photo
        assert found[first] > 2 * found[second], photo


def test_labels_are_a_thousand_names_and_282_is_one(assets: Assets) -> None:
    labels = json.loads(assets.labels.read_text("utf-8"))
    assert len(labels) == 1000
    assert all(isinstance(label, str) and label for label in labels)
    assert labels[281:283] == ["tabby cat", "tiger cat"]


def test_the_model_is_plain_onnx_of_any_batch(assets: Assets, session: onnxruntime.InferenceSession) -> None:
    model = onnx.load(str(assets.model))
    onnx.checker.check_model(model, full_check=True)
    assert [opset.version for opset in model.opset_import] == [17]
    assert {node.op_type for node in model.graph.node} == {
        "Add",
        "Clip",
        "Conv",
        "Flatten",
        "Gemm",
        "GlobalAveragePool",
    }
    (entry,), (result,) = session.get_inputs(), session.get_outputs()
    assert (entry.name, entry.shape, entry.type) == ("input", ["batch", 3, 224, 224], "tensor(float)")
    assert (result.name, result.shape) == ("logits", ["batch", 1000])
    batch = np.random.default_rng(7).standard_normal((3, 3, 224, 224), dtype=np.float32)
    whole = session.run(None, {"input": batch})[0]
    for index in range(3):
        alone = session.run(None, {"input": batch[index : index + 1]})[0][0]
        np.testing.assert_allclose(whole[index], alone, atol=1e-4)


def test_weights_of_another_network_are_refused() -> None:
    with pytest.raises(AssetError, match="_conv_stem"):
        build({"_bn0." + part: np.ones(32) for part in ("weight", "bias", "running_mean", "running_var")})


@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("side", [7, 14, 15, 224])
def test_padding_gives_the_promised_side(side: int, kernel: int, stride: int) -> None:
    output, (top, left, bottom, right) = same_padding(side, kernel, stride)
    assert output == -(-side // stride)
    assert (side + top + bottom - kernel) // stride + 1 == output
    assert (top, bottom) == (left, right)
    assert bottom - top in (0, 1)


# --- archives --------------------------------------------------------------------------------------------------------


def _zip(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def _tar(path: Path, entries: Sequence[tuple[tarfile.TarInfo, bytes]]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for entry, content in entries:
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


EVERYTHING = [Keep("data/*", "photos/")]


@pytest.mark.parametrize(
    "name", ["data/../../evil.png", "../evil.png", "/data/evil.png", "data\\..\\evil.png", "C:evil.png"]
)
def test_members_that_climb_out_are_refused(tmp_path: Path, name: str) -> None:
    for archive in (
        _zip(tmp_path / "a.whl", {name: b"x"}),
        _tar(tmp_path / "a.tar.gz", [(tarfile.TarInfo(name), b"x")]),
    ):
        with pytest.raises(AssetError, match="points outside"):
            unpack(archive, EVERYTHING, tmp_path / "root")
    assert not list(tmp_path.rglob("*evil*"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_pipes_are_refused(tmp_path: Path, kind: bytes) -> None:
    entry = tarfile.TarInfo("data/photo.png")
    entry.type, entry.linkname = kind, "/etc/passwd"
    with pytest.raises(AssetError, match="no regular file"):
        unpack(_tar(tmp_path / "a.tar.gz", [(entry, b"")]), EVERYTHING, tmp_path / "root")
    assert not (tmp_path / "root/photos/photo.png").exists()


def test_only_images_within_bounds_are_taken_and_names_are_flattened(tmp_path: Path) -> None:
    members = {
        "data/a.png": b"1",
        "data/deep/b.JPG": b"22",
        "data/c.py": b"3",
        "data/big.png": b"4" * 99,
        "other/d.png": b"5",
    }
    keeps = [Keep("data/*", "photos/", max_bytes=10, skip=("a.png",)), Keep("data/c.py", "code.txt")]
    names = unpack(_zip(tmp_path / "a.whl", members), keeps, tmp_path / "root")
    assert names == ["code.txt", "photos/deep__b.JPG"]
    assert (
        sorted(str(path.relative_to(tmp_path / "root")) for path in (tmp_path / "root").rglob("*.*")) == names
    )


def test_a_named_member_longer_than_allowed_leaves_nothing_behind(tmp_path: Path) -> None:
    archive = _zip(tmp_path / "a.whl", {"data/a.png": bytes(100)})
    with pytest.raises(AssetError, match="longer than 50 bytes"):
        unpack(archive, [Keep("data/a.png", "a.png", max_bytes=50)], tmp_path / "root")
    assert not [path for path in (tmp_path / "root").rglob("*") if path.is_file()]


def test_two_members_for_one_name_are_refused(tmp_path: Path) -> None:
    archive = _zip(tmp_path / "a.whl", {"data/a/b.png": b"1", "data/a__b.png": b"2"})
    with pytest.raises(AssetError, match="claim the name"):
        unpack(archive, EVERYTHING, tmp_path / "root")


def test_an_archive_without_the_wanted_or_broken_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AssetError, match="nothing that matches data"):
        unpack(_zip(tmp_path / "a.whl", {"x.png": b""}), EVERYTHING, tmp_path / "root")
    for name in ("broken.whl", "broken.tar.gz"):
        (tmp_path / name).write_bytes(b"this is no archive")
        with pytest.raises(AssetError, match="cannot be unpacked"):
            unpack(tmp_path / name, EVERYTHING, tmp_path / "root")


# --- fetching, with a small catalogue and a made-up system -----------------------------------------------------------


class System:
    """Answers for pip, apt-get and dpkg-deb, and counts who was asked for what."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.archives = {
            "one": _zip(
                folder / "one-1.whl", {"data/one.png": b"picture one", "data/first.png": b"picture two"}
            ),
            "two": _zip(folder / "two-1.whl", {"data/two.png": b"picture three"}),
            "deb": _tar(folder / "deb_1_all.deb", [(tarfile.TarInfo("./data/deb.png"), b"picture four")]),
        }
        self.asked: list[str] = []
        self.failing: set[str] = set()

    def packages(self) -> tuple[Package, ...]:
        checksums = {
            name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in self.archives.items()
        }
        kinds: dict[str, Any] = {"one": "wheel", "two": "wheel", "deb": "debian"}
        return tuple(Package(name, "1", kinds[name], checksum) for name, checksum in checksums.items())

    def __call__(self, command: Sequence[str], cwd: Path, output: Path | None = None) -> Outcome:
        if command[0] == "dpkg-deb":
            assert output is not None
            shutil.copy(command[-1], output)
            return Outcome(0, "")
        name = command[-1] if command[0] == "apt-get" else Path(command[-1]).read_text().partition("==")[0]
        self.asked.append(name)
        if name not in self.archives or name in self.failing:
            return Outcome(1, f"WARNING: retrying\nERROR: no route to {name}\nhint: none")
        shutil.copy(self.archives[name], cwd)
        return Outcome(0, "")


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> System:
    made_up = System(tmp_path / "registry")
    keeps = {name: (Keep("data/*", f"photos/natural/{name}/"),) for name in made_up.archives}
    monkeypatch.setattr(catalogue, "KEEPS", keeps)
    monkeypatch.setattr(catalogue, "LARGE", ())
    monkeypatch.setattr(catalogue, "DECODED", {})
    monkeypatch.setattr(catalogue, "KNOWN_ANSWERS", {"photos/natural/two/two.png": "two", "gone.png": "gone"})
    monkeypatch.setattr(FETCH_MODULE, "packages", made_up.packages)
    monkeypatch.setattr(FETCH_MODULE, "_model_steps", lambda job: [])
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    monkeypatch.setenv("HEADRACE_ASSETS", str(tmp_path / "cache"))
    return made_up


def _quiet(line: str) -> None:
    """Progress nobody reads."""


def test_a_complete_cache_asks_nobody(system: System) -> None:
    root = fetch(_quiet, run=system)
    assert system.asked == ["one", "two", "deb"]
    assert (root / "photos/natural/deb/deb.png").read_bytes() == b"picture four"
    assert not (root / ".work").exists()
    lines: list[str] = []
    fetch(lines.append, run=_refuse)
    fetch(lines.append, run=_refuse, deep=True)
    assert lines == []


def _refuse(command: Sequence[str], cwd: Path, output: Path | None = None) -> Outcome:
    raise AssertionError(f"asked for {command}")


def test_load_gives_what_was_fetched(system: System) -> None:
    root = fetch(_quiet, run=system)
    loaded = load()
    natural = root / "photos/natural"
    assert loaded.photos == (
        natural / "deb/deb.png",
        natural / "one/first.png",
        natural / "one/one.png",
        natural / "two/two.png",
    )
    assert loaded.answers == {str(natural / "two/two.png"): "two"}
    assert loaded.jxl_flower == ()


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _flip(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])


@pytest.mark.parametrize("damage", [Path.unlink, _truncate, _flip])
def test_damage_is_seen_and_only_its_package_is_fetched_again(
    system: System, damage: Callable[[Path], None]
) -> None:
    victim = fetch(_quiet, run=system) / "photos/natural/two/two.png"
    damage(victim)
    system.asked.clear()
    fetch(_quiet, run=system)
    assert system.asked == ["two"]
    assert victim.read_bytes() == b"picture three"
    load()


def test_damage_that_keeps_size_and_time_is_seen_by_a_deep_look(system: System) -> None:
    victim = fetch(_quiet, run=system) / "photos/natural/one/one.png"
    before = victim.stat()
    _flip(victim)
    os.utime(victim, ns=(before.st_atime_ns, before.st_mtime_ns))
    fetch(_quiet, run=system, deep=True)
    assert victim.read_bytes() == b"picture one"


def test_load_says_what_is_damaged(system: System) -> None:
    victim = fetch(_quiet, run=system) / "photos/natural/two/two.png"
    victim.unlink()
    with pytest.raises(AssetError, match=r"two\.png is missing or damaged; run `make setup`"):
        load()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 2}', '{"format": 1, "steps": {"a": 1}}'])
def test_an_unreadable_manifest_is_rebuilt(system: System, content: str) -> None:
    root = fetch(_quiet, run=system)
    (root / "manifest.json").write_text(content)
    with pytest.raises(AssetError, match="make setup"):
        load()
    fetch(_quiet, run=system)
    load()


def test_a_failing_pip_is_named_and_the_next_run_resumes(system: System) -> None:
    system.failing = {"two"}
    with pytest.raises(
        AssetError, match=r"pip could not fetch two 1: ERROR: no route to two -- check the network"
    ) as caught:
        fetch(_quiet, run=system)
    assert caught.value.exit_code == 69
    with pytest.raises(AssetError, match="incomplete; run `make setup`"):
        load()
    system.failing, system.asked = set(), []
    fetch(_quiet, run=system)
    assert system.asked == ["two", "deb"]


def test_a_wrong_checksum_is_an_error_and_nothing_is_unpacked(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned = tuple(Package(p.name, p.version, p.kind, "0" * 64) for p in system.packages())
    monkeypatch.setattr(FETCH_MODULE, "packages", lambda: pinned)
    with pytest.raises(AssetError, match=r"the checksum of one 1 is [0-9a-f]{64}, expected 0{64}"):
        fetch(_quiet, run=system)
    assert not list((Path(os.environ["HEADRACE_ASSETS"])).rglob("*.png"))


def test_without_debian_one_line_is_said_once_and_retry_asks_again(system: System) -> None:
    system.failing = {"deb"}
    lines: list[str] = []
    root = fetch(lines.append, run=system)
    assert [line for line in lines if "skipped" in line] == [
        "skipped deb: apt-get says: E: it could get no list of packages (no network?); "
        "the other photographs suffice, --retry asks again"
    ]
    load()
    lines.clear()
    fetch(lines.append, run=_refuse)
    assert lines == []
    system.failing = set()
    fetch(_quiet, run=system, retry=True)
    assert (root / "photos/natural/deb/deb.png").exists()


def test_a_damaged_debian_file_that_cannot_be_had_again_is_forgotten(system: System) -> None:
    root = fetch(_quiet, run=system)
    (root / "photos/natural/deb/deb.png").write_bytes(b"?")
    system.failing = {"deb"}
    fetch(_quiet, run=system)
    assert root / "photos/natural/deb/deb.png" not in load().photos


def test_another_debian_release_is_accepted_with_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")

    def run(command: Sequence[str], cwd: Path, output: Path | None = None) -> Outcome:
        (cwd / "photos_2%3a2.0-1_all.deb").write_bytes(b"a later release")
        return Outcome(0, "")

    lines: list[str] = []
    download(Package("photos", "1.0-1", "debian", "0" * 64), tmp_path, run, lines.append)
    assert lines == [
        "  photos_2%3a2.0-1_all.deb is not the pinned 1.0-1: checksum not pinned, apt's signed index has it"
    ]
    with pytest.raises(AssetError, match=r"the checksum of photos 2:2\.0-1"):
        download(Package("photos", "2:2.0-1", "debian", "0" * 64), tmp_path, run, lines.append)


def test_what_a_killed_run_left_is_swept(system: System) -> None:
    root = fetch(_quiet, run=system)
    leftover = root / "photos/natural/.two.png.1-2.part"
    leftover.write_bytes(b"half")
    fetch(_quiet, run=_refuse)
    assert not leftover.exists()


def test_a_second_run_waits_for_the_first(system: System) -> None:
    root = Path(os.environ["HEADRACE_ASSETS"])
    said, lines = threading.Event(), []

    def tell(line: str) -> None:
        lines.append(line)
        said.set()

    with only_one(root, lambda: None):
        second = threading.Thread(target=fetch, args=(tell,), kwargs={"run": system})
        second.start()
        assert said.wait(10)
        assert (lines, system.asked) == ([f"waiting for another run that fills {root}"], [])
    second.join(10)
    assert system.asked == ["one", "two", "deb"]


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_command_fails_in_one_line(
    system: System, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    system.failing = {"one"}
    monkeypatch.setattr(__main__, "fetch", lambda progress, **options: fetch(progress, run=system, **options))
    assert __main__.main([]) == 69
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert said.err.startswith("assets: pip could not fetch one 1: ERROR: no route to one")
    system.failing = set()
    assert __main__.main([]) == 0
    assert "assets complete: 5 files" in capsys.readouterr().out


def test_a_command_that_does_not_exist_or_fails_is_reported(tmp_path: Path) -> None:
    with pytest.raises(AssetError, match="no-such-command cannot be started"):
        run_command(["no-such-command"], tmp_path)
    outcome = run_command(
        [sys.executable, "-c", "import sys; print('shown nowhere'); sys.exit('ERROR: told')"], tmp_path
    )
    assert (outcome.code, outcome.last_words()) == (1, "ERROR: told")


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("HEADRACE_ASSETS", str(tmp_path / "file" / "cache"))
    with pytest.raises(AssetError, match="cannot write the asset cache"):
        fetch(_quiet, run=_refuse)


def test_no_address_of_a_registry_is_written_down() -> None:
    for path in [
        *PACKAGE_FOLDER.glob("*.py"),
        *PACKAGE_FOLDER.glob("*.lock"),
        *PACKAGE_FOLDER.glob("*.toml"),
    ]:
        assert "://" not in path.read_text("utf-8"), path


def test_every_locked_package_has_a_checksum_and_a_use() -> None:
    assert {package.name for package in packages()} == set(catalogue.KEEPS)
    assert all(len(bytes.fromhex(package.sha256)) == 32 for package in packages())


# --- the real cache --------------------------------------------------------------------------------------------------


def test_large_pictures_look_like_a_phones(assets: Assets) -> None:
    assert len(assets.large_baseline) >= 6
    names = [path.name for path in assets.large_baseline]
    assert [path.name for path in assets.large_progressive] == names == [path.name for path in assets.small]
    for path in assets.large_baseline:
        assert 1_400_000 < path.stat().st_size < 4_500_000, path
        with Image.open(path) as image:
            assert 7_900_000 < image.width * image.height < 14_100_000, path
            assert "progressive" not in image.info
    for path in assets.large_progressive:
        with Image.open(path) as image:
            assert image.info["progressive"] == 1, path
    for path in assets.small:
        with Image.open(path) as image:
            assert image.size == (256, 256)


def test_progressive_and_baseline_hold_the_same_pixels(assets: Assets) -> None:
    pair = assets.large_baseline[0], assets.large_progressive[0]
    first, second = (np.asarray(Image.open(path).convert("RGB")) for path in pair)
    assert np.array_equal(first, second)


def test_pngs_are_the_baselines_before_compression(assets: Assets) -> None:
    assert len(assets.large_png) == 3
    (png,) = (path for path in assets.large_png if path.stem == "pug")
    (jpeg,) = (path for path in assets.large_baseline if path.stem == "pug")
    first, second = (np.asarray(Image.open(path).convert("RGB"), np.int16) for path in (png, jpeg))
    assert np.abs(first - second).mean() < 2


def test_photographs_open_and_awkward_files_are_kept_apart(assets: Assets) -> None:
    assert not set(assets.photos) & set(assets.awkward)
    assert set(assets.large_baseline) < set(assets.photos)
    assert set(assets.jxl_flower) <= set(assets.awkward)
    assert len(assets.awkward) > 100
    for path in assets.photos:
        with Image.open(path) as image:
            assert image.format in {"JPEG", "PNG"}, path


def test_the_flower_is_there_in_all_layouts(assets: Assets) -> None:
    if not assets.jxl_flower:
        pytest.skip("libjxl-testdata could not be had here")
    assert [path.suffix for path in assets.jxl_flower] == [".png"] + [".jpg"] * 12
    assert {Image.open(path).size for path in assets.jxl_flower} == {(2268, 1512)}
