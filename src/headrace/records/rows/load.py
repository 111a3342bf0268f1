"""A load run: images, requests, latencies."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from headrace.records.rows.column import float64, int16, int32, int64, text


class ImageRow(NamedTuple):
    """One image that was sent, told once."""

    source: Annotated[int, int32("Its number in this capture.")]
    name: Annotated[str, text("File, URL, or place in a pack.")]
    format: Annotated[str | None, text("jpeg, png, ...; None where the bytes are not known or are none.")]
    size_bytes: Annotated[int | None, int64("Encoded size.")]
    width: Annotated[int | None, int32("Stored width in pixels.")]
    height: Annotated[int | None, int32("Stored height in pixels.")]


class OutcomeRow(NamedTuple):
    """One request of a load run. Latency counts from the intended time: a stalled server cannot hide what it kept from being sent."""

    number: Annotated[int, int64("In the order of intended times.")]
    phase: Annotated[str, text("`warm-up`, `run`, or the step of a step or ramp.")]
    source: Annotated[int, int32("The image, as in `images`.")]
    intended_s: Annotated[
        float, float64("When it should have been sent, in seconds since the capture began.")
    ]
    sent_s: Annotated[float | None, float64("When it was; None: never sent.")]
    done_s: Annotated[float | None, float64("When its answer was complete; None: there was none.")]
    status: Annotated[int | None, int16("HTTP status; None: no answer.")]
    error: Annotated[
        str | None,
        text(
            "Kind of failure: refused, reset, timeout, http_5xx, wrong_answer, unsent, ...; None: it went well."
        ),
    ]
    sent_bytes: Annotated[int, int64("Of the body.")]
    received_bytes: Annotated[int, int64("Of the answer's body.")]


class SpanRow(NamedTuple):
    """What one request spent in one stage, as the server told in `Server-Timing`."""

    number: Annotated[int, int64("The request, as in `outcomes`.")]
    stage: Annotated[str, text("Stage.")]
    wait_us: Annotated[int, int32("In its queue.")]
    service_us: Annotated[int, int32("Being worked on.")]


class LatencyRow(NamedTuple):
    """One bucket of a latency histogram: within 1 % of the true values at every scale."""

    phase: Annotated[str, text("As in `outcomes`.")]
    kind: Annotated[str, text("`ok`, or a kind of failure.")]
    low_us: Annotated[int, int64("Values from here,")]
    high_us: Annotated[int, int64("to below here.")]
    requests: Annotated[int, int64("How many.")]
