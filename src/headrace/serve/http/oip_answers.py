"""What the model says, as the Open Inference Protocol's outputs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from headrace.core.image.outputs import activate, top_k
from headrace.errors import RequestError
from headrace.records.image import AnyArray, Prediction
from headrace.records.recipe import ModelCard
from headrace.serve.http.answers import plain
from headrace.serve.http.exchange import JSON, Answer
from headrace.serve.http.oip_tensors import InferRequest, Wanted, as_bytes, datatype, raw_bytes

BINARY = b"application/octet-stream"


def wanted_outputs(request: InferRequest, names: Sequence[str]) -> tuple[Wanted, ...]:
    """The outputs to answer with. Raises RequestError for one the model does not have."""
    for output in request.outputs:
        if output.name not in names:
            raise RequestError(f"the model has no output {output.name[:80]!r}; it has {', '.join(names)}")
    return request.outputs or tuple(Wanted(name, request.binary) for name in names)


def infer_answer(
    head: dict[str, Any], predictions: Sequence[Prediction], wanted: Sequence[Wanted], card: ModelCard
) -> Answer:
    """The answer; `head` is completed with the outputs. Raw bytes of outputs follow the JSON."""
    outputs, blobs = [], []
    for output in wanted:
        array = np.stack([prediction.outputs[output.name] for prediction in predictions])
        if output.classes:
            array = _classes(array, output.classes, card)
        entry: dict[str, Any] = {
            "name": output.name,
            "datatype": datatype(array.dtype),
            "shape": list(array.shape),
        }
        if output.binary:
            blobs.append(raw_bytes(array))
            entry["parameters"] = {"binary_data_size": len(blobs[-1])}
        else:
            entry["data"] = plain(array.reshape(-1))
        outputs.append(entry)
    text = orjson.dumps({**head, "outputs": outputs}, option=orjson.OPT_SERIALIZE_NUMPY)
    if not any(output.binary for output in wanted):
        return Answer(200, text, JSON)
    fields = ((b"inference-header-content-length", b"%d" % len(text)),)
    return Answer(200, b"".join((text, *blobs)), BINARY, fields)


def _classes(array: AnyArray, count: int, card: ModelCard) -> AnyArray:
    """BYTES [n, count]: `score:index:label`, the best first; scores as the recipe's activation makes them."""
    rows = []
    for scores in array:
        best = top_k(activate(scores, card.activation), min(count, scores.size), card.labels)
        rows.append(
            [as_bytes(f"{one.score:f}:{one.index}" + (f":{one.label}" if one.label else "")) for one in best]
        )
    return np.array(rows, dtype=object)
