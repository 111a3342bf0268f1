"""How an image becomes a request, as the operator named it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.errors import UsageError
from headrace.load.oip import as_oip, ask_inputs
from headrace.load.template import as_template, parse_template
from headrace.load.wire import Endpoint, Maker, as_body, as_form, as_url, expecting
from headrace.store.recipe_files import load_recipe
from headrace.units import format_bytes
from headrace.workflows.image_sets import spelled

KINDS = ("body", "form", "url", "oip", "oip-json")
MOST_TEMPLATE_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """What requests look like, and which answers are right. Raises UsageError for what does not go together."""

    kind: str = "body"
    """One of `KINDS`; after a colon the name of the form's field (`form:image`) or of the JSON's key (`url:image_url`)."""
    template: Path | None = None
    """A file with the request, in place of `kind`."""
    recipe: Path | None = None
    """With `oip`: images are decoded here and sent as tensors."""
    fields: tuple[str, ...] = ()
    """Header fields, `Name: value`."""
    expect: str | None = None
    """A status, or a regular expression for the answer's body."""

    def __post_init__(self) -> None:
        kind, colon, name = self.kind.partition(":")
        if kind not in KINDS or (colon and (not name or kind not in ("form", "url"))):
            raise UsageError(f"--as {self.kind!r} is none of {', '.join(KINDS)}, form:FIELD and url:KEY")
        if self.template is not None and self.kind != "body":
            raise UsageError("--template writes the whole request; leave --as out")
        if self.recipe is not None and (self.template is not None or not kind.startswith("oip")):
            raise UsageError(
                "--recipe prepares tensors for --as oip; other requests carry the image as it is"
            )

    def as_dict(self) -> Mapping[str, Any]:
        """For the capture. Values of header fields are left out: they may be secrets."""
        return {
            "as": self.kind if self.template is None else "template",
            "template": None if self.template is None else spelled(str(self.template)),
            "recipe": None if self.recipe is None else spelled(str(self.recipe)),
            "fields": [field.partition(":")[0] for field in self.fields],
            "expect": self.expect,
        }


def maker_of(url: str, sending: Sending) -> Maker:
    """Makes the requests. For `oip` the server is asked what its model takes. Raises UsageError."""
    judge = None if sending.expect is None else expecting(sending.expect)
    endpoint = Endpoint.of(url, sending.fields, judge)
    if sending.template is not None:
        return as_template(endpoint, parse_template(_read(sending.template)))
    kind, _, name = sending.kind.partition(":")
    if kind == "form":
        return as_form(endpoint, name or "file")
    if kind == "url":
        return as_url(endpoint, name or "url")
    if kind == "body":
        return as_body(endpoint)
    recipe = None if sending.recipe is None else load_recipe(sending.recipe).recipe
    return as_oip(endpoint, ask_inputs(url), recipe, binary=kind == "oip")


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            text = file.read(MOST_TEMPLATE_BYTES + 1)
    except OSError as problem:
        raise UsageError(f"{path} cannot be read: {problem.strerror or problem}") from None
    if len(text) > MOST_TEMPLATE_BYTES:
        raise UsageError(
            f"{path} is larger than {format_bytes(MOST_TEMPLATE_BYTES)}, too large for a template"
        )
    return text
