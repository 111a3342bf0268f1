"""What a model's numbers mean: activations, top classes, pictures of maps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.image.outputs import activate, grey_picture, top_k

finite = st.floats(-(2.0**100), 2.0**100, width=32)


@given(st.lists(finite, min_size=1, max_size=20), st.floats(-50, 50))
def test_softmax_is_a_distribution_and_ignores_shifts(scores: list[float], shift: float) -> None:
    made = activate(np.array([scores], np.float32), "softmax")
    assert made.dtype == np.float32 and np.all(made >= 0) and made.sum() == pytest.approx(1.0, abs=1e-5)
    small = np.array([scores], np.float64) % 10
    np.testing.assert_allclose(activate(small, "softmax"), activate(small + shift, "softmax"), atol=1e-5)


@given(st.lists(finite, min_size=1, max_size=20))
def test_sigmoid_stays_within_bounds_and_is_symmetric(scores: list[float]) -> None:
    values = np.array(scores, np.float32)
    made = activate(values, "sigmoid")
    assert np.all((made >= 0) & (made <= 1))
    np.testing.assert_allclose(made + activate(-values, "sigmoid"), 1.0, atol=1e-6)


def test_activation_axes_and_none() -> None:
    scores = np.array([[[1000.0, -1000.0]], [[0.0, 0.0]]], np.float16)
    np.testing.assert_allclose(activate(scores, "softmax"), [[[1, 0]], [[0.5, 0.5]]])
    np.testing.assert_allclose(activate(scores, "softmax", axis=1), np.ones((2, 1, 2)))
    assert activate(scores, "none").dtype == np.float32
    assert np.isnan(activate(np.array([1.0, np.nan]), "softmax")).all()


def test_top_k() -> None:
    found = top_k(np.array([0.1, 0.7, np.nan, 0.7, -np.inf]), 9, ("a", "b", "c"))
    assert [(entry.index, entry.label) for entry in found] == [(1, "b"), (3, ""), (0, "a"), (4, ""), (2, "c")]
    assert [entry.index for entry in top_k(np.array([[[3.0]], [[9.0]]]), 1)] == [1]
    with pytest.raises(ValueError, match="at least 1"):
        top_k(np.zeros(3), 0)


def test_grey_pictures() -> None:
    plane = np.array([[-1.0, 0.0, 1.0], [1.0, -1.0, 0.5]])
    for shape in ((2, 3), (1, 2, 3), (2, 3, 1)):
        np.testing.assert_array_equal(grey_picture(plane.reshape(shape)), [[0, 128, 255], [255, 0, 191]])
    np.testing.assert_array_equal(grey_picture(np.array([[np.nan, 5.0, np.inf, 7.0]])), [[0, 0, 0, 255]])
    for flat in (np.full((2, 2), 3.0), np.full((2, 2), np.nan), np.zeros((0, 4))):
        assert not grey_picture(flat).any()
    assert grey_picture(np.array([[-3e38, 3e38]], np.float32)).tolist() == [[0, 255]]
    with pytest.raises(ValueError, match="one channel"):
        grey_picture(np.zeros((3, 4, 5)))
