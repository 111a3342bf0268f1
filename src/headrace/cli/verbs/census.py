"""`headrace census`."""

from __future__ import annotations

import argparse
from pathlib import Path

from headrace.cli import output
from headrace.cli.flags import at_least_one, json_flag
from headrace.core.policy.eviction import POLICIES
from headrace.errors import UsageError
from headrace.units import parse_bytes


def flags(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "places",
        type=Path,
        nargs="+",
        metavar="PLACE",
        help="what production sends: images, folders, lists, .rec packs; access logs (plain or .gz, - for standard input); or a capture",
    )
    verb.add_argument(
        "--against",
        type=Path,
        action="append",
        default=[],
        metavar="PLACE",
        help="what is tested with, to compare; may be repeated",
    )
    verb.add_argument(
        "--policy",
        action="append",
        choices=list(POLICIES),
        help="policy of the cache beside LRU; may be repeated. Default: all",
    )
    verb.add_argument(
        "--thorough",
        action="store_true",
        help="run policies beside LRU on up to a million requests, not on a sample: some 2 s a policy, size and million requests",
    )
    verb.add_argument(
        "--recipe", type=Path, metavar="FILE", help="the recipe whose prepared images a cache would hold"
    )
    verb.add_argument(
        "--entry-bytes", type=_size, metavar="SIZE", help="or the bytes of one entry, as in 147KiB"
    )
    _reading_flags(verb)
    json_flag(verb)


def _reading_flags(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--fields",
        metavar="WHAT=NAME,...",
        default="",
        help="fields of a JSON or CSV log: time, url, bytes, status, method",
    )
    verb.add_argument("--only", default="", metavar="REGEX", help="only requests whose address it finds")
    verb.add_argument("--strip-query", action="store_true", help="leave ?... out of addresses")
    verb.add_argument("--most", type=at_least_one, metavar="N", help="the first N images or requests only")


def run(options: argparse.Namespace) -> int:
    from headrace.cli.census_text import page
    from headrace.store.access_logs import parse_fields
    from headrace.workflows.census import census
    from headrace.workflows.census_sources import Reading

    report = census(
        options.places,
        against=options.against,
        policies=options.policy or tuple(POLICIES),
        entry_bytes=_entry_bytes(options),
        thorough=options.thorough,
        reading=Reading(
            fields=parse_fields(options.fields) if options.fields else {},
            strip_query=options.strip_query,
            only=options.only,
            most=options.most,
        ),
    )
    print(output.as_json(report.as_dict()) if options.json else page(report))
    return 0


def _entry_bytes(options: argparse.Namespace) -> int | None:
    """One prepared image: a byte for each channel of each pixel (`Prepared`)."""
    from headrace.store.recipe_files import load_recipe

    if options.recipe is None:
        size: int | None = options.entry_bytes
        return size
    if options.entry_bytes is not None:
        raise UsageError("--recipe and --entry-bytes say the same thing; give one of them")
    recipe = load_recipe(options.recipe).recipe
    return recipe.width * recipe.height * recipe.channels


def _size(text: str) -> int:
    """A flag's value: bytes, above 0."""
    try:
        size = parse_bytes(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None
    if size < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no size above 0")
    return size
