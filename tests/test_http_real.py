"""The real model and real photographs, and files that do harm elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http as triton

from headrace.errors import AssetError
from headrace.lab.assets.library import Assets, load
from headrace.records.settings import Settings
from headrace.serve.engine.engine import open_engine
from headrace.serve.http.app import App
from headrace.store.recipe_files import load_recipe
from http_support import WAIT_S, Live, listening


@pytest.fixture(scope="module")
def assets() -> Assets:
    try:
        return load()
    except AssetError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def live(assets: Assets) -> Iterator[Live]:
    file = load_recipe(assets.recipe)
    engine = open_engine(assets.model, file, Settings(accelerator="cpu", request_timeout_ms=60_000.0))
    engine.start()
    assert engine.wait_ready(3 * WAIT_S).ready
    app = App(engine, file, "lite")
    with listening(app) as port:
        yield Live(port, app, engine, engine.runner)
    engine.close()


def test_photographs_get_their_labels(live: Live, assets: Assets) -> None:
    right = 0
    paths = [path for path in assets.small if str(path) in assets.answers]
    for path in paths:
        reply = live.post(path.read_bytes())
        assert reply.status == 200 and len(reply.json["predictions"]) == 5
        right += reply.json["predictions"][0]["label"] == assets.answers[str(path)]
    assert paths and right >= len(paths) - 1


def test_a_large_photograph_through_both_doors(live: Live, assets: Assets) -> None:
    data = assets.large_baseline[0].read_bytes()
    assert len(data) > 500_000
    best = live.post(data, "/predict?top_k=1").json["predictions"][0]
    tensor = triton.InferInput("image", [1, 1], "BYTES")
    tensor.set_data_from_numpy(np.array([[data]], dtype=object))
    with triton.InferenceServerClient(f"127.0.0.1:{live.port}", network_timeout=60.0) as client:
        name = client.get_model_metadata("lite")["outputs"][0]["name"]
        result = client.infer("lite", [tensor], outputs=[triton.InferRequestedOutput(name, class_count=1)])
        score, index, label = result.as_numpy(name)[0][0].decode().split(":", 2)
    assert (int(index), label) == (best["index"], best["label"])
    assert float(score) == pytest.approx(best["score"], abs=1e-3)


@pytest.mark.parametrize("name", ["16384x16384.png", "16383x16383.png"])
def test_picture_bombs(live: Live, assets: Assets, name: str) -> None:
    bombs = [path for path in assets.awkward if path.name == name]
    assert bombs
    assert live.post(bombs[0].read_bytes()).is_error(422, "image_too_large")


def test_awkward_files_are_answered_one_way_or_the_other(live: Live, assets: Assets) -> None:
    chosen: list[Path] = [path for path in assets.awkward if path.stat().st_size < 200_000][::4]
    for path in chosen:
        assert live.post(path.read_bytes()).status in (200, 415, 422), path
    assert live.app.counters.seen == live.app.counters.answered
