"""The command line: every verb used well and wrongly; exit codes; what is printed where."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import tiny_models
from headrace import __version__
from headrace.cli.main import build_parser, main
from headrace.core.recipes.toml import parse_recipe_toml
from headrace.records.recipe import Recipe
from headrace.records.settings import TABLE
from pictures import encoded, picture
from server_process import COMMAND, PATIENCE_S, run

VERBS = ("serve", "plan", "parity", "record", "load", "isolate", "census", "estimate", "settings", "recipe")
EMULATED = ("--accelerator", "emulated:0.1ms+0ms")
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one of everything, in which the command runs without settings from outside."""
    for name in [name for name in os.environ if name.startswith("HEADRACE_")]:
        if name != "HEADRACE_ASSETS":
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    Path("recipe.toml").write_text("[recipe]\nwidth = 32\nheight = 24\n")
    Path("images/deep").mkdir(parents=True)
    Path("images/a.jpg").write_bytes(encoded(picture(640, 480), "JPEG"))
    Path("images/deep/b.PNG").write_bytes(encoded(picture(64, 48), "PNG"))
    Path("images/c.jpg").write_bytes(b"no image")
    Path("images/notes.txt").write_text("no image either")
    Path("empty").mkdir()
    tiny_models.saved(tiny_models.classifier(dims=("n", 3, 24, 32)), tmp_path)
    return tmp_path


def wrong(capsys: Captured, arguments: Sequence[str], code: int = 64) -> str:
    """The one line that wrong use ends with."""
    try:
        found = main(arguments)
    except SystemExit as end:
        found = int(end.code or 0)
    out, err = capsys.readouterr()
    assert found == code, err
    assert out == "" and err.startswith("headrace: ") and err.count("\n") == 1 and err.endswith("\n"), err
    return err


def right(capsys: Captured, *arguments: str) -> str:
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def strict_json(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


# --- help --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", [(), *((verb,) for verb in VERBS)])
def test_help(capsys: Captured, verb: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as end:
        main([*verb, "--help"])
    assert end.value.code == 0
    out, err = capsys.readouterr()
    assert err == "" and out.startswith(f"usage: {' '.join(['headrace', *verb])}")
    for name in VERBS if not verb else ():
        assert f"\n  {name} " in out or f"    {name} " in out


def test_help_of_a_verb_has_every_setting(capsys: Captured) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    out = " ".join(capsys.readouterr().out.split())
    for info in TABLE:
        assert "--" + info.name.replace(".", "-").replace("_", "-") in out
        assert info.says.replace("- ", "-") in out or info.says.split()[0] in out


def test_version(capsys: Captured) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0 and capsys.readouterr().out == f"headrace {__version__}\n"


def test_these_are_all_verbs() -> None:
    usage = build_parser().format_help()
    for verb in VERBS:
        assert verb in usage
    actions = [action for action in build_parser()._actions if isinstance(action.choices, dict)]
    assert set(actions[0].choices or ()) == set(VERBS)


# --- wrong use of anything ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([], "VERB"),
        (["sreve"], "'sreve'"),
        (["settings", "extra"], "extra"),
        (["settings", "--jsn"], "--jsn"),
        (["settings", "--js"], "--js"),
        (["recipe"], "FILE"),
        (["plan", "model.onnx"], "--images"),
        (["parity", "model.onnx", "--images"], "--images"),
        (["plan", "--images", "images", "--most", "0"], "'0'"),
        (["plan", "--images", "images", "--most", "-1"], "'-1'"),
        (["plan", "--images", "images", "--most", "few"], "'few'"),
        (["serve", "--decode-workers"], "--decode-workers"),
    ],
)
def test_wrong_use_ends_with_64_and_points_to_the_help(
    capsys: Captured, arguments: list[str], part: str
) -> None:
    err = wrong(capsys, arguments)
    assert part in err and "--help`" in err


IMAGE_VERBS = [("plan", *EMULATED), ("parity",)]


@pytest.mark.parametrize("verb", IMAGE_VERBS)
@pytest.mark.parametrize(
    ("images", "part"),
    [
        (["gone.jpg"], "gone.jpg does not exist"),
        (["empty"], "empty holds no image"),
        (["images", "empty"], "empty holds no image"),
        (["/dev/null"], "/dev/null is neither"),
        (["x" * 300], "cannot be read: File name too long"),
    ],
)
def test_images_that_are_not_there(
    capsys: Captured, verb: tuple[str, ...], images: list[str], part: str
) -> None:
    assert part in wrong(capsys, [*verb, "--recipe", "recipe.toml", "--images", *images])


@pytest.mark.parametrize(
    "verb", [("serve", *EMULATED), *((*verb, "--images", "images") for verb in IMAGE_VERBS)]
)
@pytest.mark.parametrize(
    ("recipe", "part"),
    [
        ("gone.toml", "gone.toml cannot be read: No such file"),
        ("images", "images cannot be read: Is a directory"),
        ("images/a.jpg", "images/a.jpg is not UTF-8"),
        ("images/notes.txt", "images/notes.txt"),
    ],
)
def test_recipes_that_cannot_be_read(capsys: Captured, verb: tuple[str, ...], recipe: str, part: str) -> None:
    assert part in wrong(capsys, [*verb, "--recipe", recipe])


@pytest.mark.parametrize(
    "verb", [("serve", *EMULATED), *((*verb, "--images", "images") for verb in IMAGE_VERBS)]
)
def test_no_recipe_at_all(capsys: Captured, verb: tuple[str, ...]) -> None:
    assert "--recipe FILE" in wrong(capsys, verb)
    assert "model.recipe.toml" in wrong(capsys, [verb[0], "model.onnx", *verb[1:]])


@pytest.mark.parametrize("verb", ["serve", "plan", "parity"])
@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (["--batch-max-items", "0"], "command line: batch.max_items=0 is outside 1 to 1024"),
        (["--batch-max-items", "2.5"], "batch.max_items='2.5' is not a whole number"),
        (["--batch-window-ms", "nan"], "batch.window_ms=nan"),
        (["--decode-fidelity", "best"], "decode.fidelity='best' is not one of fast, exact"),
        (["--decode-skip-scans", "maybe"], "decode.skip_scans='maybe' is not true or false"),
        (["--limits-max-body-bytes", "32 parsecs"], "is not a number of bytes like 64MiB"),
        (["--set", "batch.max_itmes=4"], "did you mean"),
        (["--set", "batch.max_items"], "is not NAME=VALUE"),
        (["--settings", "gone.toml"], "settings file gone.toml cannot be read"),
        (["--settings", "images"], "settings file images cannot be read"),
        (["--settings", "images/a.jpg"], "settings file images/a.jpg is not TOML"),
    ],
)
def test_settings_that_do_not_work(capsys: Captured, verb: str, flags: list[str], part: str) -> None:
    images = [] if verb == "serve" else ["--images", "images"]
    assert part in wrong(capsys, [verb, "--recipe", "recipe.toml", *images, *flags])


# --- settings ----------------------------------------------------------------------------------------------------------------


def test_settings_as_a_table_and_as_json(capsys: Captured) -> None:
    text = right(capsys, "settings")
    rows = strict_json(right(capsys, "settings", "--json"))
    assert [row["name"] for row in rows] == [info.name for info in TABLE]
    for row in rows:
        assert row["name"] in text and row["says"] in text
        assert set(row) == {"name", "type", "default", "low", "high", "one_of", "live", "says"}


def plan_path(capsys: Captured, *flags: str) -> str:
    """The path that the settings chose, as `plan` reports it."""
    arguments = ("plan", "--recipe", "recipe.toml", "--images", "images/deep", "--json", *EMULATED)
    return str(strict_json(right(capsys, *arguments, *flags))["path"])


def test_the_later_source_of_a_setting_wins(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    legacy, staged = '[prepare]\npath = "legacy"\n', '[prepare]\npath = "staged"\n'
    Path("legacy.toml").write_text(legacy)
    Path("staged.toml").write_text(staged)
    assert plan_path(capsys) == "staged"
    assert plan_path(capsys, "--settings", "legacy.toml") == "legacy"
    monkeypatch.setenv("HEADRACE_SETTINGS", "legacy.toml")
    assert plan_path(capsys) == "legacy"
    assert plan_path(capsys, "--settings", "staged.toml") == "staged"
    monkeypatch.setenv("HEADRACE_PREPARE_PATH", "staged")
    assert plan_path(capsys) == "staged"
    assert plan_path(capsys, "--prepare-path", "legacy") == "legacy"
    assert plan_path(capsys, "--set", "prepare.path=legacy") == "legacy"


@pytest.mark.parametrize(
    ("variable", "value", "part"),
    [
        ("HEADRACE_BATCH_MAX_ITEMS", "lots", "environment: batch.max_items='lots'"),
        ("HEADRACE_BATCH_MAX_ITMES", "4", "environment: HEADRACE_BATCH_MAX_ITMES is no setting"),
        ("HEADRACE_SETTINGS", "gone.toml", "gone.toml cannot be read"),
    ],
)
def test_environment_that_does_not_work(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, part: str
) -> None:
    monkeypatch.setenv(variable, value)
    assert part in wrong(capsys, ["serve", *EMULATED, "--recipe", "recipe.toml"])


def test_a_settings_file_that_does_not_work(capsys: Captured) -> None:
    for text, part in (
        ("[batch]\nmax_items = 'four'\n", "batch.max_items='four'"),
        ("[batch]\nmax_items = true\n", "batch.max_items=True"),
        ("[batch\n", "is not TOML"),
        ("batch = 4\n", "'batch'"),
    ):
        Path("settings.toml").write_text(text)
        err = wrong(capsys, ["serve", *EMULATED, "--recipe", "recipe.toml", "--settings", "settings.toml"])
        assert "settings.toml" in err and part in err


# --- recipe ------------------------------------------------------------------------------------------------------------------


def test_recipe_prints_toml_that_reads_back(capsys: Captured) -> None:
    size, normal = {"height": 384, "width": 384}, {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    does = {"do_resize": True, "do_rescale": True, "do_normalize": True}
    Path("preprocessor_config.json").write_text(json.dumps({"size": size, "resample": 2, **normal, **does}))
    text = right(capsys, "recipe", "preprocessor_config.json")
    file = parse_recipe_toml(text, read_labels=lambda name: ())
    assert (file.recipe.width, file.recipe.height, file.recipe.mean) == (384, 384, (0.5, 0.5, 0.5))
    Path("again.toml").write_text(text)
    assert right(capsys, "recipe", "again.toml") == text
    assert parse_recipe_toml(
        right(capsys, "recipe", "recipe.toml"), read_labels=lambda name: ()
    ).recipe == Recipe(width=32, height=24)


@pytest.mark.parametrize("file", ["gone.toml", "empty", "images/a.jpg", "images/notes.txt", "model.onnx"])
def test_recipe_of_something_else(capsys: Captured, file: str) -> None:
    assert file in wrong(capsys, ["recipe", file])


# --- plan --------------------------------------------------------------------------------------------------------------------


def test_plan_lists_every_operation_with_its_cost(capsys: Captured) -> None:
    arguments = (
        "plan",
        "model.onnx",
        "--recipe",
        "recipe.toml",
        "--accelerator",
        "cpu",
        "--images",
        "images",
    )
    report = strict_json(right(capsys, *arguments, "--json"))
    assert (report["path"], report["images"], report["emulated"]) == ("staged", 2, False)
    assert len(report["refused"]) == 1 and "c.jpg" in report["refused"][0]
    assert all(cost["median_ms"] >= 0 for cost in report["costs"])
    assert sum(cost["share"] for cost in report["costs"]) == pytest.approx(1)
    text = right(capsys, *arguments)
    for cost in report["costs"]:
        assert cost["operation"]["name"] in text
    assert "not read: images/c.jpg" in text and "EMULATED" not in text


def test_plan_on_an_emulated_accelerator_says_so(capsys: Captured) -> None:
    arguments = ("plan", *EMULATED, "--recipe", "recipe.toml", "--images", "images/a.jpg")
    assert "EMULATED" in right(capsys, *arguments)
    assert strict_json(right(capsys, *arguments, "--json"))["emulated"] is True


@pytest.mark.parametrize("flags", [("--prepare-path", "legacy"), ("--decode-fidelity", "exact")])
def test_plan_of_other_paths(capsys: Captured, flags: tuple[str, ...]) -> None:
    arguments = ("plan", *EMULATED, "--recipe", "recipe.toml", "--images", "images", "--most", "1", *flags)
    report = strict_json(right(capsys, *arguments, "--json"))
    assert report["images"] == 1 and not report["refused"]


def test_plan_of_files_that_are_no_images(capsys: Captured) -> None:
    images = ("--images", "images/notes.txt", "images/c.jpg")
    err = wrong(capsys, ["plan", *EMULATED, "--recipe", "recipe.toml", *images])
    assert "none of the images can be read" in err and "images/notes.txt" in err


def test_plan_needs_a_model_or_an_emulated_accelerator(capsys: Captured) -> None:
    assert "--accelerator emulated:" in wrong(capsys, ["plan", "--images", "images"])
    arguments = ["plan", "gone.onnx", "--recipe", "recipe.toml", "--images", "images"]
    assert "gone.onnx" in wrong(capsys, arguments, 65)


# --- parity ------------------------------------------------------------------------------------------------------------------


def test_parity_of_pixels_and_of_a_model(capsys: Captured) -> None:
    pixels = ("parity", "--recipe", "recipe.toml", "--images", "images")
    report = strict_json(right(capsys, *pixels, "--json"))
    assert len(report["images"]) == 2 and report["model"] == ""
    assert [item["code"] for item in report["unreadable"]] == ["unsupported_media"]
    assert "no model was given" in right(capsys, *pixels)
    model = strict_json(right(capsys, "parity", "model.onnx", *pixels[1:], "--json"))
    assert model["fast"]["outputs"][0]["output"] == "logits"


def test_parity_of_files_that_are_no_images_is_valid_json(capsys: Captured) -> None:
    arguments = ("parity", "--recipe", "recipe.toml", "--images", "images/notes.txt")
    report = strict_json(right(capsys, *arguments, "--json"))
    assert report["fast"] is None and report["images"] == []
    assert "not compared: images/notes.txt" in right(capsys, *arguments)


# --- the process -------------------------------------------------------------------------------------------------------------


def reader_gone(*arguments: str) -> tuple[int, str]:
    """Exit code and standard error of a command whose standard output nobody reads."""
    read, write = os.pipe()
    os.close(read)
    try:
        ended = subprocess.run(
            [COMMAND, *arguments],
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    finally:
        os.close(write)
    return ended.returncode, ended.stderr


@pytest.mark.parametrize(
    "arguments", [("settings",), ("settings", "--json"), ("--help",), ("serve", "--help")]
)
def test_a_reader_that_has_gone_is_no_error_of_ours(arguments: tuple[str, ...]) -> None:
    code, err = reader_gone(*arguments)
    assert err == ""
    assert code == 141 or (code == 0 and "--help" in arguments)  # argparse swallows the error of long texts


def test_exit_codes_reach_the_shell() -> None:
    assert run("settings").returncode == 0
    ended = run("settings", "--nonsense")
    assert ended.returncode == 64 and "Traceback" not in ended.stderr


def test_output_can_be_closed() -> None:
    ended = subprocess.run(
        ["sh", "-c", f'"{COMMAND}" settings >&-'],
        stderr=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
