"""What the figures of an isolation mean, in sentences. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.core.isolation.buildup import LEAST, Buildup, Step, compare
from headrace.core.isolation.foreign import FIXED, FULL, OWN, SAME, SAYS, Answers, Verdict
from headrace.units import per_s

NOISY = 0.3
"""Half the range of a ratio, past which the run is called noisy."""
FEW_CLIENTS = 1.3
"""More clients that raise the rate by less are served one at a time."""
UNLIKE = 1.3
"""Times that differ by more than this factor are worth a word."""
STRAIGHT = 0.15
"""A line that no size is further from, in shares of the largest picture's latency, is called straight."""


def chain_sentence(steps: Sequence[Step], buildup: Buildup, ceiling: tuple[int, Step], device: str) -> str:
    """The finding: where the chain falls off, the ceiling, how busy the device is."""
    measured = [step for step in steps if step.windows]
    whole, (batch, alone) = measured[-1], ceiling
    where = "Device (the CPU, which preparation uses too)" if device == "cpu" else "Device"
    busy = "" if whole.busy is None else f" {where} busy {whole.busy:.0%}."
    best = f" Ceiling: the model alone does {per_s(alone.rate_per_s)} at batch {batch}.{busy}"
    if buildup.fall is not None:
        rates = {step.link: step.rate_per_s for step in measured}
        fall = buildup.fall
        return (
            f"The chain falls off at {fall.link}: {per_s(rates[fall.link])} against {per_s(rates[fall.before])} before it "
            f"({fall.share:+.0%}).{best}"
        )
    together = compare(measured[0], whole)
    if together.counts and together.share < 0.0:
        return f"No one link falls off; together they cost {-together.share:.0%}: the whole chain does {per_s(whole.rate_per_s)}.{best}"
    return f"No link costs more than the noise: the whole chain does {per_s(whole.rate_per_s)}, so the model is the limit.{best}"


def chain_notes(
    steps: Sequence[Step], buildup: Buildup, preparing: Step, batches: Mapping[int, Step], device: str
) -> tuple[str, ...]:
    """What would help at most, what would not, and how far the figures can be trusted."""
    return (
        *_device_note(steps, preparing, device),
        *_fall_note(steps, buildup),
        *_batch_note(batches),
        f"Noise: from round to round the rate of a step against the one before moved by up to ±{buildup.noise:.0%}; a change counts when "
        f"every round agrees on it and it is larger than its noise and than {LEAST:.0%}.",
        *(
            ["The rounds differ much: something else uses this machine; measure again when it is quiet."]
            if buildup.noise > NOISY
            else []
        ),
    )


def _device_note(steps: Sequence[Step], preparing: Step, device: str) -> tuple[str, ...]:
    whole = next(step for step in steps if step.link == "decode")
    gain = compare(whole, preparing)
    busy = (
        ""
        if whole.busy is None
        else f"; one twice as fast would be busy {whole.busy / 2:.0%} in place of {whole.busy:.0%}"
    )
    prepared = f"with a device that takes no time the same chain does {per_s(preparing.rate_per_s)}"
    if device == "cpu":
        if gain.counts and gain.share > 0.0:
            return (
                f"The model runs on the CPU beside the preparation; {prepared}: a device of its own wins at most {won(gain.share)}.",
            )
        return (
            f"The model runs on the CPU beside the preparation; {prepared}: a device of its own wins nothing.",
        )
    if gain.counts and gain.share > 0.0:
        return (f"A faster device wins at most {won(gain.share)}: {prepared}.",)
    return (f"A faster device wins nothing: {prepared}{busy}.",)


def _fall_note(steps: Sequence[Step], buildup: Buildup) -> tuple[str, ...]:
    fall = buildup.fall
    if fall is None:
        return ()
    rates = {step.link: step.rate_per_s for step in steps if step.windows}
    return (
        f"If {fall.link} and all outside it cost nothing, the chain would do {per_s(rates[fall.before])} "
        f"({won(buildup.ceilings[fall.link])}): the most that work on it can win.",
    )


def _batch_note(batches: Mapping[int, Step]) -> tuple[str, ...]:
    if len(batches) < 2:
        return ()
    (small, first), (large, last) = min(batches.items()), max(batches.items())
    change = compare(first, last)
    if change.counts and change.share > 0.0:
        return (f"The model alone does {won(change.share)} at batch {large} against batch {small}.",)
    if change.counts:
        return (
            f"Larger batches make the model slower: {won(change.share)} at batch {large} against batch {small}.",
        )
    return (f"Batching wins no more than noise: batch {large} against batch {small} of the model alone.",)


def won(share: float) -> str:
    """+32%, x4.5: a change of a rate, as people say it."""
    return f"{share:+.0%}" if share < 1.0 else f"x{1.0 + share:.3g}"


# --- a foreign service ---------------------------------------------------------------------------------------------------------


def foreign_sentence(verdict: Verdict) -> str:
    """The finding: the slowest link, and what the rest is."""
    time = f"of the time an image takes with {clients(verdict.clients)}"
    slowest = verdict.slowest
    rest = [part for part in verdict.parts if part is not slowest and part.counts]
    others = ", ".join(f"{SAYS[part.name][0]} {part.share:.0%}" for part in rest)
    if slowest is None:
        return f"No link takes half {time}: {others or 'the rounds differ too much'}."
    link, how = SAYS[slowest.name]
    head = f"The slowest link is {link}: {slowest.share:.0%} {time} {how}."
    return f"{head} The rest: {others}." if others else head


def foreign_notes(verdict: Verdict, answers: Sequence[Answers], model_s: float | None) -> tuple[str, ...]:
    """What would help at most, how it scales, whether it keeps answers."""
    return (
        *_won_note(verdict),
        *_fit_note(verdict, answers),
        *_scaling_note(verdict),
        _cache_note(verdict, answers),
        *_own_note(answers),
        *_model_note(verdict, model_s),
    )


def _won_note(verdict: Verdict) -> tuple[str, ...]:
    slowest = verdict.slowest
    if slowest is None or slowest.share >= 0.999:
        return ()
    return (
        f"If that cost nothing, it would answer x{1.0 / (1.0 - slowest.share):.1f} as many: the most that work on it can win "
        f"(rounds: {slowest.low:.0%} to {slowest.high:.0%}).",
    )


def _fit_note(verdict: Verdict, answers: Sequence[Answers]) -> tuple[str, ...]:
    fit = verdict.fit
    if fit is None:
        return ()
    largest = max(answers, key=lambda each: each.megapixels)
    straight = fit.worst_s <= STRAIGHT * largest.latency_s
    line = f"{1e3 * fit.fixed_s:.3g} ms + {1e3 * fit.per_megapixel_s:.3g} ms a megapixel"
    how = (
        f"within {1e3 * fit.worst_s:.2g} ms"
        if straight
        else "and not straight: sizes are treated differently, as scaled decode does"
    )
    return (f"One request alone takes {line} ({how}).",)


def _scaling_note(verdict: Verdict) -> tuple[str, ...]:
    few, many = min(verdict.scaling), max(verdict.scaling)
    if few == many:
        return ()
    gain = max(verdict.scaling.values())
    says = (
        "it works on one image at a time, the others wait"
        if gain < FEW_CLIENTS
        else f"it works on up to {gain:.1f} times as much at once, the others wait"
    )
    steps = ", ".join(f"x{share:.2f} with {number}" for number, share in sorted(verdict.scaling.items())[1:])
    return (f"More clients than {few}: {steps}: {says}.",)


def _cache_note(verdict: Verdict, answers: Sequence[Answers]) -> str:
    if not any(each.kind == SAME for each in answers):
        return "Whether answers are kept was not tried."
    if verdict.cached is None:
        return "Identical bytes are answered no faster than new ones: nothing is kept."
    return f"Identical bytes are answered x{verdict.cached:.1f} as fast as new ones: answers or prepared images are kept."


def _own_note(answers: Sequence[Answers]) -> tuple[str, ...]:
    """The tests' picture is a JPEG of ours; the set may be of other formats and sizes."""
    few = min(each.clients for each in answers)
    times = {each.kind: each.latency_s for each in answers if each.clients == few}
    if OWN not in times or FULL not in times or 1.0 / UNLIKE < times[OWN] / times[FULL] < UNLIKE:
        return ()
    return (
        f"The set's own images take {1e3 * times[OWN]:.3g} ms, the picture that was made of one of them {1e3 * times[FULL]:.3g} ms: "
        "its sizes, formats or contents differ.",
    )


def _model_note(verdict: Verdict, model_s: float | None) -> tuple[str, ...]:
    fixed = next((part for part in verdict.alone if part.name == FIXED), None)
    if model_s is None or fixed is None or fixed.seconds <= 0.0:
        return ()
    return (
        f"The model alone takes {1e3 * model_s:.3g} ms an image here; the fixed part of one request is {1e3 * fixed.seconds:.3g} ms, "
        f"so {min(1.0, model_s / fixed.seconds):.0%} of it would be the model.",
    )


def clients(number: int) -> str:
    """1 client, 4 clients."""
    return f"{number} client{'' if number == 1 else 's'}"
