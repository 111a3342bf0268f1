"""The Open Inference Protocol v2, as the public client speaks it and by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton

from headrace.models.emulated import fingerprint
from http_support import SIZE, GateRunner, Live, picture, recipe_file, serving, until

COLOURS = [(200, 10, 20), (5, 6, 230), (77, 88, 99)]
INFER = "/v2/models/demo/infer"


def model(batch: Any) -> dict[str, Any]:
    return {"fingerprint": fingerprint(batch, "nhwc"), "texts": np.full((len(batch), 1), "ä", object)}


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with serving(
        GateRunner(model), recipe_file(task="classify", labels=("r", "g", "b")), batch_window_ms=2.0
    ) as live:
        yield live


@pytest.fixture
def client(live: Live) -> Iterator[Any]:
    with triton.InferenceServerClient(f"127.0.0.1:{live.port}") as client:
        yield client


def images(binary: bool, shape: tuple[int, ...] = (3, 1)) -> Any:
    import base64

    pictures = [picture(colour) for colour in COLOURS]
    data = pictures if binary else [base64.b64encode(one) for one in pictures]
    tensor = triton.InferInput("image", list(shape), "BYTES")
    tensor.set_data_from_numpy(np.array(data, dtype=object).reshape(shape), binary_data=binary)
    return tensor


def prepared(binary: bool) -> Any:
    rows = np.stack([np.full((SIZE, SIZE, 3), colour, np.uint8) for colour in COLOURS])
    tensor = triton.InferInput("prepared", list(rows.shape), "UINT8")
    tensor.set_data_from_numpy(rows, binary_data=binary)
    return tensor


def test_what_the_server_and_the_model_say_of_themselves(client: Any) -> None:
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("demo")
    assert client.is_model_ready("demo", "1") and not client.is_model_ready("other")
    server = client.get_server_metadata()
    assert server["name"] == "headrace" and {"binary_tensor_data", "classification", "statistics"} <= set(
        server["extensions"]
    )
    metadata = client.get_model_metadata("demo")
    assert metadata["inputs"][1] == {"name": "prepared", "datatype": "UINT8", "shape": [-1, SIZE, SIZE, 3]}
    assert metadata["outputs"] == [
        {"name": "fingerprint", "datatype": "FP32", "shape": [-1, 3]},
        {"name": "texts", "datatype": "BYTES", "shape": [-1, 1]},
    ]
    config = client.get_model_config("demo", "1")
    assert config["max_batch_size"] == 64 and config["input"][0]["data_type"] == "TYPE_STRING"
    assert client.get_model_repository_index() == [
        {"name": "demo", "version": "1", "state": "READY", "reason": ""}
    ]


@pytest.mark.parametrize("binary_out", [True, False])
@pytest.mark.parametrize(
    "tensor", [images(True), images(True, (3,)), images(False), prepared(True), prepared(False)]
)
def test_inference_through_the_public_client(client: Any, tensor: Any, binary_out: bool) -> None:
    outputs = [triton.InferRequestedOutput(name, binary_data=binary_out) for name in ("fingerprint", "texts")]
    result = client.infer("demo", [tensor], outputs=outputs, request_id="42")
    assert result.get_response()["id"] == "42" and result.get_response()["model_name"] == "demo"
    assert np.array_equal(result.as_numpy("fingerprint"), np.array(COLOURS, np.float32))
    texts = result.as_numpy("texts").ravel()
    assert [text.decode() if isinstance(text, bytes) else text for text in texts] == ["ä"] * 3


def test_all_outputs_when_none_is_asked_for(client: Any) -> None:
    result = client.infer("demo", [images(True)], priority=1, timeout=5_000_000)
    assert np.array_equal(result.as_numpy("fingerprint"), np.array(COLOURS, np.float32))


def test_classification(client: Any) -> None:
    for binary in (True, False):
        wanted = triton.InferRequestedOutput("fingerprint", binary_data=binary, class_count=2)
        rows = client.infer("demo", [images(True)], outputs=[wanted]).as_numpy("fingerprint")
        best = [str(row[0], "utf-8") if isinstance(row[0], bytes) else row[0] for row in rows]
        assert rows.shape == (3, 2)
        assert best == ["200.000000:0:r", "230.000000:2:b", "99.000000:2:b"]


def test_statistics_count_images_requests_and_failures() -> None:
    with serving(GateRunner(model)) as live, triton.InferenceServerClient(f"127.0.0.1:{live.port}") as client:
        for _ in range(4):
            client.infer("demo", [images(True)])
        with pytest.raises(triton.InferenceServerException):
            client.infer("demo", [images(True)], outputs=[triton.InferRequestedOutput("nope")])
        stats = client.get_inference_statistics("demo")["model_stats"][0]
        assert stats["inference_count"] == 12 and 4 <= stats["execution_count"] <= 12
        assert (
            stats["inference_stats"]["success"]["count"] == 4
            and stats["inference_stats"]["fail"]["count"] == 1
        )
        assert stats["inference_stats"]["compute_infer"]["ns"] > 0
        assert client.get_inference_statistics()["model_stats"][0]["name"] == "demo"


def test_a_bad_image_fails_its_request_by_number_and_no_other(client: Any, live: Live) -> None:
    tensor = triton.InferInput("image", [3, 1], "BYTES")
    data = [picture(COLOURS[0]), picture(COLOURS[1])[:70], picture(COLOURS[2])]
    tensor.set_data_from_numpy(np.array(data, dtype=object).reshape(3, 1))
    with pytest.raises(triton.InferenceServerException, match="image 1 of 3"):
        client.infer("demo", [tensor])
    assert client.infer("demo", [images(True)]).as_numpy("fingerprint").shape == (3, 3)
    until(lambda: live.engine.inside == 0)


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compressed_requests_are_refused_in_words(client: Any, algorithm: str) -> None:
    with pytest.raises(triton.InferenceServerException, match="Content-Encoding"):
        client.infer("demo", [images(True)], request_compression_algorithm=algorithm)


def ask(live: Live, **changes: Any) -> Any:
    data = [[[[1, 2, 3]] * SIZE] * SIZE]
    tensor = {"name": "prepared", "datatype": "UINT8", "shape": [1, SIZE, SIZE, 3], "data": data, **changes}
    return live.post(json.dumps({"inputs": [tensor]}).encode(), INFER)


def test_prepared_pixels_in_json_nested_or_flat(live: Live) -> None:
    for data in ([[[[1, 2, 3]] * SIZE] * SIZE], [1, 2, 3] * SIZE * SIZE):
        assert ask(live, data=data).json["outputs"][0]["data"] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    "changes",
    [
        {"data": [1]},
        {"data": [1.5] * (SIZE * SIZE * 3)},
        {"data": [256] * (SIZE * SIZE * 3)},
        {"data": ["x" * 1000, *[""] * (SIZE * SIZE * 3 - 1)]},
        {"data": "text"},
        {"shape": [1, SIZE, SIZE]},
        {"shape": [65, SIZE, SIZE, 3]},
        {"shape": [0, SIZE, SIZE, 3]},
        {"shape": [2**40, 2**40, 2**40, 3]},
        {"shape": [-1, SIZE, SIZE, 3]},
        {"shape": [1.0, SIZE, SIZE, 3]},
        {"datatype": "FP32"},
        {"name": "other"},
        {"name": None},
        {"parameters": []},
        {"parameters": {"binary_data_size": 2**62}},
    ],
)
def test_claims_that_do_not_hold_are_400(live: Live, changes: dict[str, Any]) -> None:
    assert ask(live, **changes).is_error(400, "bad_request")


@pytest.mark.parametrize("length", ["x", "-1", "9" * 30, "100000", ""])
def test_header_lengths_that_do_not_fit_are_400(live: Live, length: str) -> None:
    reply = live.ask("POST", INFER, b'{"inputs":[]}', {"Inference-Header-Content-Length": length})
    assert reply.is_error(400, "bad_request")


def test_another_model_or_version_is_404(live: Live) -> None:
    for path in (
        "/v2/models/other",
        "/v2/models/demo/versions/2/infer",
        "/v2/models/demo/load",
        "/v2/models/",
    ):
        reply = live.get(path)
        assert reply.is_error(404, "not_found") and "demo" in reply.json["error"]
    assert live.get(INFER).headers["allow"] == "POST"


def test_the_timeout_parameter_is_obeyed() -> None:
    with serving(GateRunner(model)) as live:
        live.runner.gate.clear()
        with (
            triton.InferenceServerClient(f"127.0.0.1:{live.port}") as client,
            pytest.raises(triton.InferenceServerException, match="deadline") as caught,
        ):
            client.infer("demo", [images(True)], timeout=30_000)
        assert caught.value.status() == "504"
