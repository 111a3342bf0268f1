"""What answers look like, by task and media type."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image

from headrace.errors import NotAcceptable
from headrace.serve.http.negotiate import choose
from http_support import GateRunner, picture, recipe_file, serving

IMAGE = picture((255, 0, 0))
OFFERED = (b"application/json", b"image/png", b"application/x-npy")


@pytest.mark.parametrize(
    "accept, chosen",
    [
        (None, b"application/json"),
        (b"*/*", b"application/json"),
        (b"image/*", b"image/png"),
        (b"IMAGE/PNG", b"image/png"),
        (b"text/html, image/png;q=0.4, application/json;q=0.3", b"image/png"),
        (b"application/json;q=0, */*", b"image/png"),
        (b"application/x-npy", b"application/x-npy"),
        (b"image/png;q=nonsense, */*;q=0.1", b"application/json"),
        (b"image/png;q=0.5;v=1 , application/*;q=0.5", b"application/json"),
    ],
)
def test_the_client_chooses(accept: bytes | None, chosen: bytes) -> None:
    assert choose(accept, OFFERED) == chosen


@pytest.mark.parametrize("accept", [b"", b"text/html", b",;,", b"*/*;q=0", b"image/png;q=0", b"x" * 10_000])
def test_nothing_fits(accept: bytes) -> None:
    with pytest.raises(NotAcceptable, match="application/json"):
        choose(accept, OFFERED)


def classes(batch: Any) -> dict[str, Any]:
    scores = np.zeros((len(batch), 4), np.float32)
    scores[:, 2] = batch[:, 0, 0, 0] / 100
    scores[:, 1] = 1
    return {"logits": scores}


def test_classes_with_labels_and_probabilities() -> None:
    file = recipe_file(task="classify", labels=("a", "b", "c"), activation="softmax")
    with serving(GateRunner(classes), file) as live:
        best = live.post(IMAGE).json["predictions"]
        assert [row["label"] for row in best] == ["c", "b", "a", ""] and best[0]["index"] == 2
        assert sum(row["score"] for row in best) == pytest.approx(1.0)
        assert len(live.post(IMAGE, "/predict?top_k=1").json["predictions"]) == 1
        assert live.post(IMAGE, accept="application/x-npy").status == 406


def with_nothing_finite(batch: Any) -> dict[str, Any]:
    return {"logits": np.full((len(batch), 3), np.nan, np.float32)}


@pytest.mark.parametrize("task", ["classify", "raw", "map"])
def test_what_is_no_number_is_still_json(task: str) -> None:
    with serving(GateRunner(with_nothing_finite), recipe_file(task=task)) as live:
        reply = live.post(IMAGE, "/predict?values=true")
        assert reply.status == 200 and b"NaN" not in reply.body and "null" in reply.body.decode()


def gradient(batch: Any) -> dict[str, Any]:
    plane = np.linspace(-4.0, 4.0, 70 * 70, dtype=np.float32).reshape(1, 70, 70)
    return {"depth": np.stack([plane] * len(batch))}


def test_a_map_as_json_picture_and_numbers() -> None:
    with serving(GateRunner(gradient), recipe_file(task="map")) as live:
        table = live.post(IMAGE).json
        assert (table["shape"], table["dtype"], table["min"], table["max"]) == (
            [1, 70, 70],
            "float32",
            -4.0,
            4.0,
        )
        assert "values" not in table
        values = np.array(live.post(IMAGE, "/predict?values=true").json["values"])
        assert values.shape == (1, 70, 70)
        png = live.post(IMAGE, accept="image/png")
        grey = np.asarray(Image.open(BytesIO(png.body)))
        assert png.headers["content-type"] == "image/png" and grey.shape == (70, 70)
        assert (grey.min(), grey.max()) == (0, 255)
        numbers = live.post(IMAGE, accept="application/x-npy")
        assert np.array_equal(np.load(BytesIO(numbers.body)), gradient(np.zeros(1))["depth"][0])


def test_a_map_with_a_sigmoid() -> None:
    with serving(GateRunner(gradient), recipe_file(task="map", activation="sigmoid")) as live:
        table = live.post(IMAGE).json
        assert 0 < table["min"] < 0.02 and 0.98 < table["max"] < 1


def many_channels(batch: Any) -> dict[str, Any]:
    return {"masks": np.ones((len(batch), 5, 8, 8), np.float16)}


def test_many_channels_are_no_picture() -> None:
    with serving(GateRunner(many_channels), recipe_file(task="map")) as live:
        assert live.post(IMAGE, accept="image/png").is_error(406, "not_acceptable")
        assert np.load(BytesIO(live.post(IMAGE, accept="application/x-npy").body)).shape == (5, 8, 8)


def several(batch: Any) -> dict[str, Any]:
    count = len(batch)
    return {
        "numbers": np.arange(count * 6, dtype=np.int64).reshape(count, 2, 3),
        "half": np.full((count, 2), 0.5, np.float16),
        "flags": np.ones((count, 2), bool),
        "texts": np.full((count, 1), "ä", object),
        "large": np.zeros((count, 5000), np.float32),
    }


def test_raw_outputs_of_every_kind() -> None:
    with serving(GateRunner(several), recipe_file()) as live:
        outputs = live.post(IMAGE).json["outputs"]
        assert outputs["numbers"] == {"shape": [2, 3], "dtype": "int64", "values": [[0, 1, 2], [3, 4, 5]]}
        assert outputs["half"]["values"] == [0.5, 0.5] and outputs["flags"]["values"] == [True, True]
        assert outputs["texts"]["values"] == ["ä"]
        assert "values" not in outputs["large"] and "values=true" in outputs["large"]["hint"]
        everything = live.post(IMAGE, "/predict?values=true").json["outputs"]
        assert len(everything["large"]["values"]) == 5000
        assert live.post(IMAGE, accept="application/x-npy").is_error(406, "not_acceptable")
