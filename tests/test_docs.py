"""Documentation that can fail: pages are what they would be generated as, words exist, links lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from headrace.cli.reference import error_classes, families, main, pages
from headrace.errors import HeadraceError
from headrace.records.settings import BY_NAME, TABLE

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference"
SENTENCE = re.compile(r"[^\s].{8,}[.)]", re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
WORD = re.compile(r"\| (?P<word>[^|]+) \| (?P<meaning>[^|]+) \| `(?P<place>[^|`]+)` \|")


@pytest.mark.parametrize("name", list(pages()))
def test_reference_pages_are_up_to_date(name: str) -> None:
    page = REFERENCE / name
    assert page.is_file() and page.read_text("utf-8") == pages()[name], (
        f"{page.relative_to(ROOT)} is out of date: run `python -m headrace.cli.reference`"
    )


def test_no_other_page_is_there() -> None:
    assert {path.name for path in REFERENCE.iterdir()} == set(pages())


def test_pages_do_not_depend_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = pages()
    monkeypatch.setenv("COLUMNS", "40")
    assert pages() == wide


def test_pages_are_written_where_they_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--into", str(tmp_path / "made")]) == 0
    assert {path.name: path.read_text("utf-8") for path in (tmp_path / "made").iterdir()} == pages()
    assert capsys.readouterr().out.count("\n") == len(pages())


@pytest.mark.parametrize("info", TABLE, ids=lambda info: info.name)
def test_every_setting_has_a_sentence(info: object) -> None:
    assert SENTENCE.fullmatch(info.says), info  # type: ignore[attr-defined]


def test_every_metric_has_a_sentence() -> None:
    for family in families():
        assert SENTENCE.fullmatch(family.documentation) or family.documentation == "Constant 1.", family.name


@pytest.mark.parametrize("error", error_classes(), ids=lambda error: error.__name__)
def test_every_error_has_a_sentence_and_a_code_of_its_own(error: type[HeadraceError]) -> None:
    assert "__doc__" in vars(error) and SENTENCE.fullmatch((error.__doc__ or "").strip())
    assert "code" in vars(error)
    assert [other for other in error_classes() if other.code == error.code] == [error]
    assert 400 <= error.http_status < 600 and 64 <= error.exit_code <= 78


def pages_with_links() -> Iterator[Path]:
    yield from (path for path in (ROOT / "README.md",) if path.is_file())
    yield from sorted((ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize("page", list(pages_with_links()), ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(outside_code(page.read_text("utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists() and found.is_relative_to(ROOT), f"{page.relative_to(ROOT)}: {target}"
        if anchor:
            assert anchor in anchors(found), f"{page.relative_to(ROOT)}: no heading for {target}"


def outside_code(text: str) -> str:
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The headings of a page as a browser of Markdown names them."""
    headings = re.findall(r"^#+ +(.+)$", outside_code(page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def words() -> list[tuple[str, str]]:
    rows = WORD.findall((ROOT / "docs" / "words.md").read_text("utf-8"))
    return [(word, place) for word, _, place in rows]


def test_the_words_are_found() -> None:
    found = {word for word, _ in words()}
    assert len(found) == len(words()) >= 25
    assert {"recipe", "stage", "span", "path", "accelerator", "emulated", "door", "books"} <= found


@pytest.mark.parametrize(("word", "place"), words())
def test_every_word_lives_where_the_page_says(word: str, place: str) -> None:
    if not place.startswith("headrace."):
        assert place in BY_NAME, f"{word}: no setting is called {place}"
        return
    module, _, name = place.rpartition(".")
    assert hasattr(import_module(module), name) or import_module(place), f"{word}: no {place}"


def test_words_that_name_a_field_or_a_value() -> None:
    from headrace.records.recipe import Recipe
    from headrace.serve.engine.books import BookReading

    assert "oversampling" in Recipe.__dataclass_fields__
    assert {"entered", "left", "failed", "dropped"} <= set(BookReading.__dataclass_fields__)
    assert BY_NAME["prepare.path"].one_of == ("staged", "legacy")
    assert BY_NAME["decode.fidelity"].one_of == ("fast", "exact")
