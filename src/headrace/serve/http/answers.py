"""What predictions look like: JSON, a grey picture, NumPy's file format. Pure but for Pillow's encoder."""

from __future__ import annotations

from functools import lru_cache
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from headrace.core.image.outputs import activate, grey_picture, top_k
from headrace.errors import HeadraceError, NotAcceptable
from headrace.models.runner import Runner
from headrace.records.image import AnyArray, Prediction
from headrace.records.recipe import RecipeFile
from headrace.records.settings import Settings
from headrace.serve.http.exchange import JSON, Fields, status_of

PNG = b"image/png"
NPY = b"application/x-npy"
MOST_VALUES = 4096
"""An output with more values is shown as its shape, unless the request asks for the values."""

Failure = HeadraceError
Outcome = Prediction | Failure


class View(NamedTuple):
    """How a request wants its answer."""

    media: bytes = JSON
    top_k: int = 5
    values: bool = False


class Answers:
    """Knows the model: its task, labels and what it is called."""

    def __init__(self, runner: Runner, file: RecipeFile, name: str, path: str) -> None:
        self._card = file.model
        self._class_axis = 0 if file.recipe.layout == "nchw" else -1
        self._task = "raw" if runner.emulated else file.model.task
        self._first = runner.output_names[0]
        self._frame: dict[str, Any] = {"model": name, "path": path}
        if runner.emulated:
            self._frame["emulated"] = True
        self.fields: Fields = ((b"x-headrace-emulated", b"true"),) if runner.emulated else ()
        """Header fields of every prediction."""
        single = len(runner.output_names) == 1
        self.offered: tuple[bytes, ...] = {
            "classify": (JSON,),
            "map": (JSON, PNG, NPY),
            "raw": (JSON, NPY) if single else (JSON,),
        }[self._task]
        """Media types one image's answer can have."""

    def one(self, prediction: Prediction, request_id: str, view: View) -> dict[str, Any]:
        """The JSON of a request with one image."""
        return {**self._frame, **self._item(prediction, view), "request_id": request_id}

    def many(
        self, outcomes: list[Outcome], request_id: str, view: View, settings: Settings
    ) -> dict[str, Any]:
        """The JSON of a request with several: one entry an image, in order; a failed one fails alone."""
        entries = [
            failure_entry(outcome, settings)
            if isinstance(outcome, HeadraceError)
            else self._item(outcome, view)
            for outcome in outcomes
        ]
        return {**self._frame, "predictions": entries, "request_id": request_id}

    def picture(self, prediction: Prediction) -> bytes:
        """A map as a grey PNG. Raises NotAcceptable where the map has more than one channel."""
        values = self._map(prediction)
        try:
            grey = grey_picture(values)
        except ValueError as problem:
            raise NotAcceptable(f"no picture can be made: {problem}; ask for {NPY.decode()}") from None
        file = BytesIO()
        Image.fromarray(grey).save(file, "PNG", compress_level=1)
        return file.getvalue()

    def numpy_file(self, prediction: Prediction) -> bytes:
        """The first output in NumPy's format, version 1."""
        values = self._map(prediction) if self._task == "map" else prediction.outputs[self._first]
        file = BytesIO()
        np.save(file, np.ascontiguousarray(values), allow_pickle=False)
        return file.getvalue()

    def _item(self, prediction: Prediction, view: View) -> dict[str, Any]:
        if self._task == "classify":
            scores = activate(prediction.outputs[self._first], self._card.activation)
            return {
                "predictions": [
                    {"label": label, "index": index, "score": score}
                    for index, score, label in map(_row, top_k(scores, view.top_k, self._card.labels))
                ]
            }
        if self._task == "map":
            return _described(self._map(prediction), view.values)
        return {
            "outputs": {
                name: _shown(array, view.values or array.size <= MOST_VALUES)
                for name, array in prediction.outputs.items()
            }
        }

    def _map(self, prediction: Prediction) -> AnyArray:
        return activate(prediction.outputs[self._first], self._card.activation, axis=self._class_axis)

    def heavy(self, prediction: Prediction, view: View) -> bool:
        """Whether the answer takes longer than an event loop should be kept."""
        return view.media != JSON or (
            view.values and sum(array.size for array in prediction.outputs.values()) > MOST_VALUES
        )


def _row(scored: Any) -> tuple[int, float, str]:
    return scored.index, scored.score, scored.label


def failure_entry(error: HeadraceError, settings: Settings) -> dict[str, Any]:
    """One image that failed, among others."""
    return {"error": str(error), "code": error.code, "status": status_of(error, settings)}


@lru_cache(maxsize=64)
def dtype_name(dtype: np.dtype[Any]) -> str:
    """NumPy works the name out anew each time, which costs as much as the rest of a small answer."""
    return str(dtype.name)


def _described(array: AnyArray, values: bool) -> dict[str, Any]:
    finite = np.isfinite(array)
    entry: dict[str, Any] = {
        "shape": list(array.shape),
        "dtype": dtype_name(array.dtype),
        "min": None,
        "max": None,
    }
    if finite.any():
        entry["min"] = float(np.min(array, where=finite, initial=np.inf))
        entry["max"] = float(np.max(array, where=finite, initial=-np.inf))
    if values:
        entry["values"] = plain(array)
    return entry


def _shown(array: AnyArray, values: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {"shape": list(array.shape), "dtype": dtype_name(array.dtype)}
    if values:
        entry["values"] = plain(array)
    else:
        entry["hint"] = (
            "add ?values=true, or ask for Accept: application/x-npy where the model has one output"
        )
    return entry


def plain(array: AnyArray) -> Any:
    """What the JSON writer takes: numbers as they are, texts as texts."""
    if array.dtype.kind in "biuf" and array.dtype.itemsize <= 8:
        return np.ascontiguousarray(array)
    if array.dtype.kind == "f":
        return array.astype(np.float64)
    return np.vectorize(_text, otypes=[object])(array).tolist()


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
