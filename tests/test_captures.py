"""Captures on disk: what is written is read, whatever cuts or damages it is told, and nothing read is invented."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import zlib
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

import numpy as np
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.errors import CaptureError, StorageError, UsageError
from headrace.records.capture import FORMAT, End, Manifest, Note
from headrace.records.rows.column import Column
from headrace.records.rows.host import CoreRow
from headrace.records.rows.process import TaskRow, ThreadRow
from headrace.records.tables import TABLES, columns
from headrace.store.captures.pieces import batch_of, head_of
from headrace.store.captures.reader import Capture
from headrace.store.captures.writer import MOST_ROWS, CaptureWriter

MANIFEST = Manifest(
    headrace="0",
    made_by="test",
    began_wall_s=1.0,
    began_monotonic_s=2.0,
    boot_id="b",
    settings={"hz": 5},
    seed=7,
)


def core_row(number: int) -> CoreRow:
    return CoreRow(number * 0.2, 0.2, number % 4, number, 2, 3, 4, 5, 6)


def task_row(number: int, command: str | None = "serve") -> TaskRow:
    return TaskRow(number * 0.2, 10, 10, 1, f"thread-{number}", command, None)


def written(folder: Path, pieces: int = 4, rows: int = 50, end: bool = True) -> Path:
    """Two tables in `pieces` pieces each."""
    with CaptureWriter.create(folder, MANIFEST) as writer:
        for piece in range(pieces):
            writer.add(core_row(number) for number in range(piece * rows, (piece + 1) * rows))
            writer.add(task_row(number) for number in range(piece * rows, (piece + 1) * rows))
            writer.flush()
            writer.note(Note(piece * 1.0, "phase", f"piece {piece}", {"piece": piece}))
        if end:
            writer.finish(End(10.0, "finished", {"rows": pieces * rows}))
    return folder


def test_what_is_written_is_read(tmp_path: Path) -> None:
    capture = Capture.open(written(tmp_path / "c"))
    assert capture.manifest == MANIFEST
    assert capture.end == End(10.0, "finished", {"rows": 200})
    assert capture.damage == ()
    assert capture.rows(CoreRow) == capture.rows(TaskRow) == 200
    assert capture.rows(ThreadRow) == 0 and len(capture.columns(ThreadRow)["tid"]) == 0
    cores = capture.columns(CoreRow)
    assert cores["user_us"].tolist() == list(range(200))
    assert cores["t_s"] == pytest.approx([number * 0.2 for number in range(200)])
    assert capture.columns(TaskRow)["name"].tolist() == [f"thread-{number}" for number in range(200)]
    assert [note.data["piece"] for note in capture.notes()] == [0, 1, 2, 3]


def cells(kind: str, optional: bool) -> st.SearchStrategy[Any]:
    made: st.SearchStrategy[Any] = {
        "int16": st.integers(-(1 << 15), (1 << 15) - 1),
        "int32": st.integers(-(1 << 31), (1 << 31) - 1),
        "int64": st.integers(-(1 << 53), 1 << 53),
        "float32": st.floats(width=32, allow_nan=False),
        "float64": st.floats(allow_nan=False),
        "bool": st.booleans(),
        "text": st.text(st.characters(codec="utf-8"), max_size=20),
    }[kind]
    return st.none() | made if optional else made


def is_optional(row: type[Any], name: str) -> bool:
    return NoneType in get_args(get_type_hints(row)[name])


@pytest.mark.parametrize("name", list(TABLES))
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_table_keeps_every_value(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    row = TABLES[name]
    kinds = {column: cells(info.kind, is_optional(row, column)) for column, info in columns(row).items()}
    rows = data.draw(
        st.lists(st.tuples(*kinds.values()).map(lambda values: row(*values)), min_size=1, max_size=8)
    )
    folder = tmp_path_factory.mktemp("capture") / "c"
    with CaptureWriter.create(folder, MANIFEST) as writer:
        writer.add(rows)
        writer.finish(End(0.0, "finished"))
    found = Capture.open(folder).columns(row)
    for column, values in found.items():
        for value, told in zip(values.tolist(), (getattr(each, column) for each in rows), strict=True):
            missing = value is None or value != value
            assert missing if told is None else value == told, (column, value, told)


def test_a_value_that_does_not_fit_is_missing_and_harms_no_other(tmp_path: Path) -> None:
    with CaptureWriter.create(tmp_path / "c", MANIFEST) as writer:
        writer.add([core_row(1), core_row(2)._replace(user_us=1 << 40), core_row(3)])
        writer.add([task_row(1, "lone \udcff surrogate")])
        writer.finish(End(0.0, "finished"))
    capture = Capture.open(tmp_path / "c")
    assert np.isnan(capture.columns(CoreRow)["user_us"]).tolist() == [False, True, False]
    assert capture.columns(TaskRow)["command"].tolist() == ["lone ? surrogate"]


def test_pieces_stay_small_and_tables_are_read_piece_by_piece(tmp_path: Path) -> None:
    with CaptureWriter.create(tmp_path / "c", MANIFEST) as writer:
        writer.add(core_row(number) for number in range(MOST_ROWS * 2 + 1))
        writer.finish(End(0.0, "finished"))
    sizes = [len(batch["core"]) for batch in Capture.open(tmp_path / "c").batches(CoreRow)]
    assert sizes == [MOST_ROWS, MOST_ROWS, 1]


# --- cut and damaged ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cores.arrows", "index.jsonl", "notes.jsonl", "end.json", "manifest.json"])
def test_cut_at_every_place(tmp_path: Path, name: str) -> None:
    whole = written(tmp_path / "c", pieces=3, rows=5)
    data = (whole / name).read_bytes()
    known = list(range(15))
    seen = set()
    for cut in range(0, len(data), 1 if len(data) < 2000 else 7):
        (whole / name).write_bytes(data[:cut])
        try:
            capture = Capture.open(whole)
        except CaptureError as problem:
            assert name == "manifest.json" and str(whole) in str(problem)
            continue
        read = capture.columns(CoreRow)["user_us"].tolist()
        assert read == known[: len(read)] and len(read) % 5 == 0
        seen.add(len(read))
        if len(read) < 15:
            assert any("cut" in line or "damaged" in line for line in capture.damage)
        assert len(capture.notes()) <= 3
    if name in ("cores.arrows", "index.jsonl"):
        assert seen == {0, 5, 10, 15}


def test_a_capture_that_was_killed_reads_up_to_its_last_flush(tmp_path: Path) -> None:
    code = (
        "import os, signal; from pathlib import Path; from tests.test_captures import *\n"
        f"writer = CaptureWriter.create(Path({str(tmp_path / 'c')!r}), MANIFEST)\n"
        "writer.add(core_row(n) for n in range(7)); writer.flush(); writer.add([core_row(8)])\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent.parent, check=False, timeout=60
    )
    assert ended.returncode == -signal.SIGKILL
    capture = Capture.open(tmp_path / "c")
    assert capture.columns(CoreRow)["user_us"].tolist() == list(range(7))
    assert capture.end is None and any("no end" in line for line in capture.damage)


@pytest.mark.parametrize("name", ["cores.arrows", "index.jsonl", "notes.jsonl", "end.json", "manifest.json"])
def test_no_flipped_bit_is_believed(tmp_path: Path, name: str) -> None:
    whole = written(tmp_path / "c", pieces=3, rows=5)
    data = (whole / name).read_bytes()
    chance = random.Random(3)
    for _ in range(150):
        bad = bytearray(data)
        bad[chance.randrange(len(bad))] ^= 1 << chance.randrange(8)
        (whole / name).write_bytes(bad)
        try:
            capture = Capture.open(whole)
        except CaptureError:
            assert name == "manifest.json"
            continue
        read = capture.columns(CoreRow)["user_us"].tolist()
        assert read == list(range(15))[: len(read)]
        assert len(read) == 15 or capture.damage


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    garbage=st.binary(max_size=400),
    name=st.sampled_from(["index.jsonl", "notes.jsonl", "end.json", "manifest.json", "cores.arrows"]),
)
def test_garbage_is_an_error_or_damage(
    garbage: bytes, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = written(tmp_path_factory.mktemp("capture") / "c", pieces=1, rows=2)
    (folder / name).write_bytes(garbage)
    try:
        capture = Capture.open(folder)
    except CaptureError:
        assert name == "manifest.json"
        return
    assert len(capture.columns(CoreRow)["core"]) in (0, 2)
    capture.notes()


def test_odd_values_in_json_are_no_traceback(tmp_path: Path) -> None:
    folder = written(tmp_path / "c", pieces=1, rows=2)
    lines = (folder / "index.jsonl").read_bytes().splitlines()
    for change in (
        {"offset": "0"},
        {"bytes": -1},
        {"bytes": 1 << 62},
        {"rows": None},
        {"crc32": "x"},
        {"table": []},
        {"bytes": True},
    ):
        odd = orjson.dumps(orjson.loads(lines[0]) | change)
        (folder / "index.jsonl").write_bytes(b"\n".join([odd, *lines[1:]]) + b"\n")
        assert len(Capture.open(folder).columns(CoreRow)["core"]) == 0


# --- made by somebody else ---------------------------------------------------------------------------------------------------


def forged(folder: Path, table: str, piece: int, data: bytes, rows: int | None = None) -> None:
    """Another piece in a table's last place, with an index that fits it."""
    lines = [orjson.loads(line) for line in (folder / "index.jsonl").read_bytes().splitlines()]
    mine = [line for line in lines if line["table"] == table]
    entry = mine[piece]
    for line in mine[piece + 1 :]:
        lines.remove(line)
    path = folder / f"{table}.arrows"
    path.write_bytes(path.read_bytes()[: entry["offset"]] + data)
    entry |= {"bytes": len(data), "crc32": zlib.crc32(data)} | ({} if rows is None else {"rows": rows})
    (folder / "index.jsonl").write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))


def piece_of(folder: Path, table: str, piece: int) -> bytes:
    lines = [orjson.loads(line) for line in (folder / "index.jsonl").read_bytes().splitlines()]
    entry = [line for line in lines if line["table"] == table][piece]
    data = (folder / f"{table}.arrows").read_bytes()
    return data[entry["offset"] : entry["offset"] + entry["bytes"]]


def test_no_forged_piece_ends_the_process(tmp_path: Path) -> None:
    """Schemas and batches with changed bits and numbers, under right checksums: the decoder would abort on hundreds of these."""
    code = (
        "import random, struct; from tests.test_captures import *\n"
        "from headrace.store.captures.pieces import batch_of, columns_of, head_of\n"
        "chance, refused = random.Random(5), 0\n"
        "for row, rows in ((CoreRow, [core_row(n) for n in range(99)]), (TaskRow, [task_row(n, None) for n in range(99)])):\n"
        "    wanted = columns(row)\n"
        "    head, batch = head_of(wanted), batch_of(wanted, rows)\n"
        "    for number in range(1200):\n"
        "        whole = (head, batch)[number % 2]\n"
        "        bad, at = bytearray(whole), chance.randrange(min(600, len(whole) - 8))\n"
        "        if number % 3: bad[at:at + 8] = struct.pack('<q', chance.choice([1 << 40, 1 << 62, -1, -2, 0, 1 << 31, 3]))\n"
        "        else: bad[at] ^= 1 << chance.randrange(8)\n"
        "        try: columns_of(*((head, bytes(bad)) if number % 2 else (bytes(bad), batch)), wanted)\n"
        "        except ValueError: refused += 1\n"
        "print(refused)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parent.parent,
        check=False,
        timeout=60,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-500:]
    assert 500 < int(done.stdout) < 2400


def test_a_forged_batch_is_an_error_and_takes_no_memory(tmp_path: Path) -> None:
    """A batch whose column says that it unpacks to 1 TiB."""
    folder = written(tmp_path / "c", pieces=2, rows=100)
    batch = bytearray(piece_of(folder, "cores", 2))
    body = 8 + int.from_bytes(batch[4:8], "little")
    at = next(
        place
        for place in range(body, len(batch), 64)
        if batch[place : place + 8] == (800).to_bytes(8, "little")
    )
    batch[at : at + 8] = (1 << 40).to_bytes(8, "little")
    forged(folder, "cores", 2, bytes(batch))
    capture = Capture.open(folder)
    with pytest.raises(CaptureError, match="more than 256 MiB"):
        capture.columns(CoreRow)
    assert capture.columns(TaskRow)["name"].tolist() == [f"thread-{number}" for number in range(200)]


def test_a_table_of_another_kind_in_its_place_is_an_error(tmp_path: Path) -> None:
    """Its index fits, but times are text."""
    folder = written(tmp_path / "c", pieces=1, rows=2)
    swapped = {
        name: Column("text" if name == "t_s" else column.kind, "")
        for name, column in columns(CoreRow).items()
    }
    forged(folder, "cores", 0, head_of(swapped))
    text_rows = [core_row(1)._replace(t_s="soon")]  # type: ignore[arg-type]
    path = folder / "cores.arrows"
    batch = batch_of(swapped, text_rows)
    line = {
        "table": "cores",
        "offset": path.stat().st_size,
        "bytes": len(batch),
        "rows": 1,
        "crc32": zlib.crc32(batch),
    }
    path.write_bytes(path.read_bytes() + batch)
    with (folder / "index.jsonl").open("ab") as file:
        file.write(orjson.dumps(line) + b"\n")
    capture = Capture.open(folder)
    assert capture.damage == () and capture.rows(CoreRow) == 1
    with pytest.raises(CaptureError, match="where float64 belongs"):
        capture.columns(CoreRow)


def test_how_many_rows_there_are_is_told_by_the_pieces_not_by_the_index(tmp_path: Path) -> None:
    folder = written(tmp_path / "c", pieces=2, rows=3)
    forged(folder, "cores", 2, piece_of(folder, "cores", 2), rows=10**15)
    assert Capture.open(folder).rows(CoreRow) == 6


def test_tables_of_another_capture_are_not_taken_for_this_ones(tmp_path: Path) -> None:
    folder, other = written(tmp_path / "c", pieces=2, rows=3), written(tmp_path / "d", pieces=3, rows=5)
    shutil.copy(other / "cores.arrows", folder)
    capture = Capture.open(folder)
    assert any("cores.arrows" in line for line in capture.damage)
    read = capture.columns(CoreRow)["user_us"].tolist()
    assert read == list(range(6))[: len(read)]
    assert len(capture.columns(TaskRow)["pid"]) == 6


@pytest.mark.parametrize("name", ["index.jsonl", "notes.jsonl", "end.json", "manifest.json", "cores.arrows"])
@pytest.mark.parametrize("kind", ["fifo", "endless", "folder"])
def test_what_is_no_file_is_damage_and_nobody_waits_for_it(tmp_path: Path, name: str, kind: str) -> None:
    folder = written(tmp_path / "c", pieces=1, rows=2)
    (folder / name).unlink()
    if kind == "fifo":
        os.mkfifo(folder / name)
    elif kind == "endless":
        (folder / name).symlink_to("/dev/zero")
    else:
        (folder / name).mkdir()
    try:
        assert any(name in line for line in Capture.open(folder).damage)
    except CaptureError as problem:
        assert name == "manifest.json" and name in str(problem)


def test_notes_that_are_lost_are_told(tmp_path: Path) -> None:
    """A gap may have been among them."""
    folder = written(tmp_path / "c", pieces=2, rows=2)
    notes = (folder / "notes.jsonl").read_bytes()
    (folder / "notes.jsonl").write_bytes(notes[:-5])
    capture = Capture.open(folder)
    assert len(capture.notes()) == 1 and any("notes.jsonl is cut" in line for line in capture.damage)
    (folder / "notes.jsonl").unlink()
    assert any("notes.jsonl" in line for line in Capture.open(folder).damage)


# --- versions ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, FORMAT + 1))
def test_old_versions_stay_readable(version: int) -> None:
    capture = Capture.open(Path(__file__).parent / "captures" / f"v{version}")
    assert capture.damage == ()
    assert capture.end is not None
    for row in TABLES.values():
        for column, values in capture.columns(row).items():
            assert len(values) == capture.rows(row), column
    assert capture.columns(CoreRow)["user_us"].tolist() == list(range(40))
    assert capture.columns(TaskRow)["command"].tolist() == [None, "serve"]


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    folder = written(tmp_path / "c")
    manifest = orjson.loads((folder / "manifest.json").read_bytes())
    (folder / "manifest.json").write_bytes(orjson.dumps(manifest | {"format": FORMAT + 1}))
    with pytest.raises(CaptureError, match=f"format {FORMAT + 1}.*reads up to {FORMAT}"):
        Capture.open(folder)


def test_fields_and_tables_of_a_later_writer_are_left_out(tmp_path: Path) -> None:
    folder = written(tmp_path / "c")
    manifest = orjson.loads((folder / "manifest.json").read_bytes())
    (folder / "manifest.json").write_bytes(orjson.dumps(manifest | {"mood": "fine"}))
    index = (folder / "index.jsonl").read_bytes()
    (folder / "index.jsonl").write_bytes(
        b'{"table":"moods","offset":0,"bytes":3,"rows":0,"crc32":0}\n' + index
    )
    capture = Capture.open(folder)
    assert capture.damage == () and capture.rows(CoreRow) == 200


# --- used wrongly ------------------------------------------------------------------------------------------------------------


def test_folders_that_will_not_do(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="no capture"):
        Capture.open(tmp_path / "nowhere")
    with pytest.raises(CaptureError, match="no capture"):
        Capture.open(Path(__file__))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    with pytest.raises(UsageError, match="not empty"):
        CaptureWriter.create(tmp_path / "full", MANIFEST)
    with pytest.raises(StorageError):
        CaptureWriter.create(Path(__file__) / "inside", MANIFEST)


def test_no_room_left_keeps_what_was_written(tmp_path: Path) -> None:
    """A limit on the size of files stands in for a full disk: the write ends half way, as there."""
    code = (
        "import resource, signal; from pathlib import Path; from tests.test_captures import *\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"with CaptureWriter.create(Path({str(tmp_path / 'c')!r}), MANIFEST) as writer:\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))\n"
        "    try:\n"
        "        for n in range(100_000):\n"
        "            writer.add([core_row(n)])\n"
        "            if n % 50 == 49: writer.flush()\n"
        "    except StorageError as problem: print(problem)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parent.parent,
        check=True,
        timeout=60,
        capture_output=True,
        text=True,
    ).stdout
    assert "reads up to here" in told
    capture = Capture.open(tmp_path / "c")
    read = capture.columns(CoreRow)["user_us"].tolist()
    assert read == list(range(len(read))) and len(read) >= 50 and capture.end is None


def test_names_that_are_no_text_do_not_stop_a_capture(tmp_path: Path) -> None:
    """Paths may hold any bytes; Python carries them as lone surrogates."""
    odd = "log:/var/\udcff\udcfe"
    with CaptureWriter.create(
        tmp_path / "c\udcff", replace(MANIFEST, settings={"progress": (odd,), odd: 1})
    ) as writer:
        writer.note(Note(1.0, "unseen", odd))
        writer.finish(End(1.0, odd, {"capture": odd}))
    capture = Capture.open(tmp_path / "c\udcff")
    assert capture.damage == ()
    assert capture.manifest.settings == {"progress": ["log:/var/??"], "log:/var/??": 1}
    assert [note.says for note in capture.notes()] == ["log:/var/??"]


def test_a_folder_that_is_deleted_meanwhile_is_noticed_at_the_next_flush(tmp_path: Path) -> None:
    with CaptureWriter.create(tmp_path / "c", MANIFEST) as writer:
        writer.add([core_row(1)])
        writer.flush()
        shutil.rmtree(tmp_path / "c")
        writer.add([core_row(2)])
        with pytest.raises(StorageError, match="was deleted"):
            writer.flush()


def test_leaving_by_an_error_keeps_what_was_added(tmp_path: Path) -> None:
    """As a second Ctrl-C does."""
    with pytest.raises(KeyboardInterrupt), CaptureWriter.create(tmp_path / "c", MANIFEST) as writer:
        writer.add([core_row(1)])
        writer.flush()
        writer.add([core_row(2), task_row(3)])
        raise KeyboardInterrupt
    capture = Capture.open(tmp_path / "c")
    assert capture.rows(CoreRow) == 2 and capture.rows(TaskRow) == 1 and capture.end is None
    assert len(capture.damage) == 1 and "no end" in capture.damage[0]


def test_leaving_by_an_error_closes_every_file(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(ZeroDivisionError), CaptureWriter.create(tmp_path / "c", MANIFEST) as writer:
        writer.add([core_row(1)])
        writer.flush()
        _ = 1 / 0
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert Capture.open(tmp_path / "c").rows(CoreRow) == 1


def test_an_hour_of_a_big_host_is_small(tmp_path: Path) -> None:
    """64 cores and 500 threads, 64 of them at work, five readings a second: six minutes here, the hour is ten times as large."""
    chance = random.Random(1)
    with CaptureWriter.create(tmp_path / "c", MANIFEST) as writer:
        for tick in range(5 * 360):
            t_s = tick * 0.2
            writer.add(
                CoreRow(t_s, 0.2, core, *(chance.randrange(20) * 10_000 for _ in range(6)))
                for core in range(64)
            )
            writer.add(thread_row(t_s, 0.2, tid, chance) for tid in range(64))
            if tick % 5 == 0:
                writer.add(thread_row(t_s, 1.0, tid, chance) for tid in range(64, 500, 8))
            if tick % 50 == 0:
                writer.flush()
        writer.finish(End(360.0, "finished"))
    size = sum(path.stat().st_size for path in (tmp_path / "c").iterdir())
    assert size * 10 < 100e6
    shutil.rmtree(tmp_path / "c")


def thread_row(t_s: float, window_s: float, tid: int, chance: random.Random) -> ThreadRow:
    cpu_us, wait_us = chance.randrange(200_000), chance.randrange(30_000)
    return ThreadRow(
        t_s, window_s, 100, tid, cpu_us, wait_us, chance.randrange(60), None, "S", chance.randrange(64), chance.randrange(9), 0, None, None
    )  # fmt: skip


def test_every_column_is_documented() -> None:
    for row in TABLES.values():
        assert row.__doc__
        for name, info in columns(row).items():
            assert info.says.endswith((".", ",")), name
