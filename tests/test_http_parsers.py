"""Whatever bytes come, the parsers answer or raise RequestError: nothing else, and nothing large."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import HeadraceError, NotAcceptable, RequestError
from headrace.records.image import Encoded
from headrace.serve.http.forms import images_in_form, images_in_json
from headrace.serve.http.negotiate import choose
from headrace.serve.http.oip_tensors import encoded_images, parse_infer, prepared_images, raw_bytes

SHAPE = (2, 2, 3)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
sizes = st.integers(-2, 70) | st.integers() | scalars
tensors = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["image", "prepared"]) | scalars,
        "datatype": st.sampled_from(["BYTES", "UINT8", "FP32"]) | scalars,
        "shape": st.sampled_from([[1], [2], [1, 1], [1, *SHAPE], [2, *SHAPE]])
        | st.lists(sizes, max_size=5)
        | anything,
    },
    optional={
        "data": st.lists(st.integers(0, 255), min_size=12, max_size=12)
        | st.lists(st.text(max_size=8), max_size=3)
        | anything,
        "parameters": st.fixed_dictionaries(
            {},
            optional={
                "binary_data_size": st.integers(-1, 80) | scalars,
                "content_type": st.just("base64") | scalars,
            },
        )
        | anything,
    },
)
requests = st.fixed_dictionaries(
    {"inputs": st.lists(tensors, max_size=3) | anything},
    optional={
        "id": scalars,
        "outputs": st.lists(
            st.fixed_dictionaries({"name": st.text(max_size=4)}, optional={"parameters": anything})
        )
        | anything,
        "parameters": st.fixed_dictionaries(
            {}, optional={"timeout": sizes, "priority": sizes, "binary_data_output": scalars}
        )
        | anything,
    },
)


def read_all(body: bytes, header_length: bytes | None) -> None:
    try:
        request = parse_infer(body, header_length)
    except RequestError:
        return
    for tensor in request.inputs:
        for read in (
            lambda tensor: encoded_images(tensor, 64),
            lambda tensor: prepared_images(tensor, SHAPE, 64),
        ):
            try:
                items = read(tensor)
            except RequestError:
                continue
            assert len(items) == tensor.shape[0] <= 64
            assert sum(map(len, items)) <= max(len(body), math.prod(SHAPE) * 64)


@settings(max_examples=300, deadline=None)
@given(requests, st.binary(max_size=100), st.integers(-3, 3))
def test_requests_that_are_nearly_right(request: Any, raw: bytes, shift: int) -> None:
    head = json.dumps(request).encode()
    read_all(head, None)
    read_all(head + raw, b"%d" % (len(head) + shift))


@settings(max_examples=200, deadline=None)
@given(
    st.binary(max_size=200),
    st.none() | st.binary(max_size=12) | st.integers(0, 250).map(lambda at: b"%d" % at),
)
def test_requests_that_are_bytes(body: bytes, header_length: bytes | None) -> None:
    read_all(body, header_length)


@settings(max_examples=200, deadline=None)
@given(
    anything | st.fixed_dictionaries({}, optional={"image": anything, "images": anything}), st.integers(1, 3)
)
def test_json_of_images(value: Any, most: int) -> None:
    try:
        form = images_in_json(json.dumps(value).encode(), most)
    except RequestError:
        return
    assert 1 <= len(form.items) <= most
    assert all(isinstance(item, Encoded | HeadraceError) for item in form.items)


pieces = st.sampled_from(
    [
        b"--edge", b"--edge--", b"\r\n", b"\r", b"\n", b"\r\n\r\n", b":", b"; ", b"Content-Disposition",
        b'form-data; name="a"; filename="b"',
        b"filename*=utf-8''%e2%82", b'filename="\xff"', b"x" * 70, b"\0",
    ]
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.lists(pieces | st.binary(max_size=6), max_size=24), st.binary(max_size=30))
def test_forms(parts: list[bytes], boundary: bytes) -> None:
    for content_type in (
        b"multipart/form-data; boundary=edge",
        b"multipart/form-data; boundary=" + boundary,
        boundary,
    ):
        try:
            form = images_in_form(b"".join(parts), content_type, 3)
        except RequestError:
            continue
        assert 1 <= len(form.items) <= 3


@given(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=5))
def test_files_come_out_of_a_form_as_they_went_in(files: list[bytes]) -> None:
    boundary = b"=-=edge-that-is-in-no-file-of-forty-bytes-or-fewer=-="
    body = b"".join(
        b'--%b\r\nContent-Disposition: form-data; name="f"; filename="%d"\r\nContent-Type: image/png\r\n\r\n%b\r\n'
        % (boundary, at, data)
        for at, data in enumerate(files)
    )
    form = images_in_form(
        body + b"--%b--\r\n" % boundary, b'multipart/form-data; boundary="%b"' % boundary, 5
    )
    assert [item.data for item in form.items if isinstance(item, Encoded)] == files
    assert form.single == (len(files) == 1)


@given(
    st.binary(max_size=60), st.lists(st.sampled_from([b"image/png", b"application/json", b"a/b"]), min_size=1)
)
def test_accept(accept: bytes, offered: list[bytes]) -> None:
    try:
        assert choose(accept, tuple(offered)) in offered
    except NotAcceptable:
        pass


@given(st.lists(st.text(max_size=9), min_size=1, max_size=5))
def test_texts_go_out_with_their_lengths(texts: list[str]) -> None:
    data, seen, at = raw_bytes(np.array(texts, dtype=object)), [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "little")
        seen.append(data[at + 4 : at + 4 + size].decode())
        at += 4 + size
    assert seen == texts


def test_few_bytes_that_would_become_much_memory_or_time() -> None:
    most = b"[" + b"{}," * 3_000_000 + b"{}]"
    for read in (lambda: images_in_json(most, 64), lambda: parse_infer(most, None)):
        with pytest.raises(RequestError, match="elements"):
            read()
    with pytest.raises(RequestError):
        images_in_json(b"[" * 100_000, 64)
    with pytest.raises(RequestError, match="parts"):
        images_in_form(b"--e\r\n\r\n\r\n" * 300, b"multipart/form-data; boundary=e", 64)
