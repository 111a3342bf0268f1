"""Does this recipe feed this model? Decided from the graph alone, before anything runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.errors import ModelError
from headrace.models.graph import Dim, Signature, Tensor, listed
from headrace.records.recipe import ModelCard, Recipe

TAKEN = ("float32", "float16", "uint8")
"""Input dtypes that a batch can be made in."""


@dataclass(frozen=True, slots=True)
class Fit:
    """How a recipe's batches go into a model."""

    input: Tensor
    """The image input as the graph declares it."""
    outputs: tuple[str, ...]
    """The outputs to compute, in the card's order, or the graph's when the card names none."""
    batch: int | None
    """The only batch size the graph takes, or None."""
    unfreeze: bool
    """Batch, height and width are to become free dimensions."""
    notes: tuple[str, ...]


def fit(signature: Signature, recipe: Recipe, card: ModelCard) -> Fit:
    """Raises ModelError with one sentence that names the value and what to change."""
    outputs = _chosen_outputs(signature, card)
    image = _image_input(signature, card, outputs)
    _check_dtype(image)
    _check_channels(image, recipe)
    if not card.unfreeze:
        _check_size(image, recipe)
    _check_labels(signature, card, outputs)
    batch = _batch_dim(image)
    frozen = batch if isinstance(batch, int) and not card.unfreeze else None
    return Fit(
        input=image,
        outputs=outputs,
        batch=frozen,
        unfreeze=card.unfreeze,
        notes=tuple(_notes(signature, image, recipe, card, outputs)),
    )


def value_range(recipe: Recipe) -> tuple[float, float]:
    """Least and greatest value the recipe can make from pixels 0..255."""
    ends = [
        (pixel * recipe.scale - mean) / std
        for mean, std in zip(recipe.mean, recipe.std, strict=True)
        for pixel in (0.0, 255.0)
    ]
    return min(ends), max(ends)


def normalises(recipe: Recipe) -> bool:
    """False when the values are the pixels themselves, 0..255."""
    return not (recipe.scale == 1.0 and set(recipe.mean) == {0.0} and set(recipe.std) == {1.0})


def _chosen_outputs(signature: Signature, card: ModelCard) -> tuple[str, ...]:
    known = tuple(tensor.name for tensor in signature.outputs)
    for name in card.outputs:
        if name not in known:
            raise ModelError(
                f"outputs names {name!r}, which the model does not have; its outputs are {listed(signature.outputs)}: "
                "change outputs in [model]"
            )
    return card.outputs or known


def _image_input(signature: Signature, card: ModelCard, outputs: tuple[str, ...]) -> Tensor:
    needs = frozenset[str]().union(
        *(
            need
            for tensor, need in zip(signature.outputs, signature.needs, strict=True)
            if tensor.name in outputs
        )
    )
    by_name = {tensor.name: tensor for tensor in signature.inputs}
    if card.input and card.input not in by_name:
        raise ModelError(
            f"input names {card.input!r}, which the model does not have; it takes {listed(signature.inputs)}: "
            "change input in [model]"
        )
    needed = [tensor for tensor in signature.inputs if tensor.name in needs] or list(signature.inputs)
    if len(needed) > 1:
        raise ModelError(_several_inputs(signature, needed, card))
    image = needed[0]
    if card.input and card.input != image.name:
        raise ModelError(
            f"the outputs {', '.join(outputs)} are computed from {image}, not from {card.input!r}: change input or "
            "outputs in [model]"
        )
    if image.dims is not None and len(image.dims) != 4:
        raise ModelError(
            f"the model's input {image} has {len(image.dims)} dimensions, and a batch of images has 4 "
            "(batch, channels, height, width): export the model so that it takes the image batch itself"
        )
    return image


def _several_inputs(signature: Signature, needed: list[Tensor], card: ModelCard) -> str:
    begin = f"the model takes {len(needed)} inputs, {listed(needed)}, and only the image can be fed"
    candidates = (
        [card.input]
        if card.input
        else [tensor.name for tensor in needed if tensor.dims and len(tensor.dims) == 4]
    )
    for candidate in candidates:
        enough = [
            tensor.name
            for tensor, need in zip(signature.outputs, signature.needs, strict=True)
            if need == frozenset({candidate})
        ]
        if enough:
            return f'{begin}: set input = "{candidate}" and outputs = {_toml_list(enough)} in [model]'
    return f"{begin}: export the model with the image as its only input and the others as constants"


def _toml_list(names: list[str]) -> str:
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"


def _check_dtype(image: Tensor) -> None:
    if image.dtype not in TAKEN:
        raise ModelError(
            f"the model's input {image} is {image.dtype or 'of unknown dtype'}; it must be one of {', '.join(TAKEN)}: "
            "export the model again, or put a Cast in front"
        )


def _check_channels(image: Tensor, recipe: Recipe) -> None:
    """The declared channels tell the layout: 1, 3 or 4 at one end and something else at the other."""
    if image.dims is None:
        return
    first, last = image.dims[1], image.dims[3]
    declared, other = (first, last) if recipe.layout == "nchw" else (last, first)
    if declared is None or isinstance(declared, str) or declared == recipe.channels:
        return
    makes = f'the recipe makes {recipe.channels} (colour = "{recipe.colour}") in {recipe.layout.upper()}'
    if other in (1, 3, 4) and declared not in (1, 3, 4):
        other_layout = "nhwc" if recipe.layout == "nchw" else "nchw"
        begin = f"the model's input {image} is {other_layout.upper()} with {_channels(other)}; {makes}"
        if other == recipe.channels:
            raise ModelError(f'{begin}: set layout = "{other_layout}" in [recipe]')
        raise ModelError(f'{begin}: set layout = "{other_layout}" in [recipe] and {_channels_advice(other)}')
    raise ModelError(
        f"the model's input {image} takes {_channels(declared)}; {makes}: {_channels_advice(declared)}"
    )


def _channels(count: Dim) -> str:
    return "1 channel" if count == 1 else f"{count} channels"


def _channels_advice(wanted: Dim) -> str:
    if wanted == 1:
        return 'set colour = "grey" with one mean and one std in [recipe]'
    if wanted == 3:
        return 'set colour = "rgb" or "bgr" with three means and stds in [recipe]'
    return f"export the model with 1 or 3 channels, as no recipe makes {wanted}"


def _check_size(image: Tensor, recipe: Recipe) -> None:
    if image.dims is None:
        return
    height, width = image.dims[2:4] if recipe.layout == "nchw" else image.dims[1:3]
    wrong = (isinstance(height, int) and height != recipe.height) or (
        isinstance(width, int) and width != recipe.width
    )
    if not wrong:
        return
    makes = f"the recipe makes {recipe.width}x{recipe.height} (width x height)"
    batch = _batch_dim(image)
    if isinstance(batch, int) and batch > 1:
        raise ModelError(
            f"the model's input {image} is fixed to batches of {batch} at {width}x{height}, which looks like a leftover "
            f"of its export, and {makes}: set unfreeze = true in [model], which frees batch, height and width"
        )
    raise ModelError(
        f"the model's input {image} is fixed at {width}x{height}; {makes}: set width and height in [recipe] to the "
        "model's, or unfreeze = true in [model] if its layers can take other sizes"
    )


def _check_labels(signature: Signature, card: ModelCard, outputs: tuple[str, ...]) -> None:
    if card.task != "classify" or not card.labels:
        return
    scores = next(tensor for tensor in signature.outputs if tensor.name == outputs[0])
    classes = scores.dims[-1] if scores.dims else None
    if isinstance(classes, int) and classes != len(card.labels):
        raise ModelError(
            f"the output {scores} has {classes} scores and labels has {len(card.labels)} names: "
            "give one label for each score, in their order"
        )


def _batch_dim(image: Tensor) -> Dim:
    return image.dims[0] if image.dims else None


def _notes(
    signature: Signature, image: Tensor, recipe: Recipe, card: ModelCard, outputs: tuple[str, ...]
) -> Iterator[str]:
    batch = _batch_dim(image)
    if card.unfreeze:
        yield f"The input {image} runs with batch, height and width freed, as unfreeze asks."
    elif batch == 1:
        yield (
            f"The input {image} is fixed to one image at a time, so batches are run one by one; export it with a free "
            "batch dimension, or try unfreeze = true in [model]."
        )
    elif isinstance(batch, int):
        yield (
            f"The input {image} is fixed to batches of {batch}, so smaller batches are filled up with blank images and "
            "cost as much; export it with a free batch dimension, or try unfreeze = true in [model]."
        )
    if len(signature.outputs) > 1 and not card.outputs:
        yield (
            f"All {len(outputs)} outputs are computed and copied ({', '.join(outputs)}); name those you need with "
            "outputs in [model]."
        )
    yield from _range_notes(image, recipe)


def _range_notes(image: Tensor, recipe: Recipe) -> Iterator[str]:
    low, high = value_range(recipe)
    if recipe.dtype != image.dtype:
        yield f"The recipe says dtype {recipe.dtype} and the input {image} is {image.dtype}: the model's is used."
    if image.dtype == "uint8":
        if normalises(recipe):
            yield (
                f"The input {image} is uint8 and the recipe normalises to {low:.4g}..{high:.4g}, which is rounded to "
                "0..255; a uint8 model usually wants scale = 1 with mean 0 and std 1."
            )
    elif low < -300.0 or high > 300.0:
        yield (
            f"The recipe makes values from {low:.4g} to {high:.4g}, more than models are trained with: check scale, mean "
            "and std (mean and std in 0..255 go with scale = 1, in 0..1 with scale = 1/255)."
        )
    elif max(abs(low), abs(high)) <= 0.02:
        yield (
            f"The recipe makes values from {low:.4g} to {high:.4g}, so small that the model sees a blank image: check "
            "scale, mean and std (mean and std in 0..255 go with scale = 1, in 0..1 with scale = 1/255)."
        )
