"""What a capture's head tells of the machine, and the names of threads."""

from __future__ import annotations

import threading
from pathlib import Path

from headrace.clock import monotonic_s
from headrace.host.machine import boot_id, checked_out_commit, machine_facts
from headrace.host.thread_name import show_thread_name
from headrace.workflows.manifests import manifest

COMMIT = "c9daa6a0e59a79b1234567890123456789012345"


def test_the_commit_of_a_checkout(tmp_path: Path) -> None:
    inside = tmp_path / "src" / "package"
    (tmp_path / ".git" / "refs" / "heads").mkdir(parents=True)
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    assert checked_out_commit(inside) is None, "a branch without a commit yet"
    (tmp_path / ".git" / "refs" / "heads" / "main").write_text(COMMIT + "\n")
    assert checked_out_commit(inside) == COMMIT
    (tmp_path / ".git" / "HEAD").write_text(COMMIT + "\n")
    assert checked_out_commit(inside) == COMMIT


def test_no_commit_outside_of_a_checkout(tmp_path: Path) -> None:
    assert checked_out_commit(tmp_path / "site-packages" / "package") is None


def test_facts_of_a_machine_that_tells_nothing(tmp_path: Path) -> None:
    facts = machine_facts(tmp_path)
    assert facts["memory_bytes"] is None and facts["processor"] is None and facts["cores"] >= 1
    assert boot_id(tmp_path) is None


def test_facts_are_read(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:       2048 kB\nMemFree: 1 kB\n")
    (tmp_path / "cpuinfo").write_bytes(b"processor\t: 0\nmodel name\t: A \xff CPU\n")
    facts = machine_facts(tmp_path)
    assert facts["memory_bytes"] == 2048 * 1024 and "CPU" in facts["processor"]


def test_the_head_of_a_capture_says_when_it_began() -> None:
    head = manifest("test", monotonic_s() - 5.0, seed=3)
    later = manifest("test", monotonic_s())
    assert 4.0 < later.began_wall_s - head.began_wall_s < 60.0
    assert head.seed == 3 and head.made_by == "test" and "gpus" in head.machine


def test_a_thread_shows_its_name_to_the_system() -> None:
    seen: list[str] = []

    def work() -> None:
        show_thread_name()
        seen.append(Path(f"/proc/self/task/{threading.get_native_id()}/comm").read_text().strip())

    thread = threading.Thread(target=work, name="headrace-a-name-of-many-letters")
    thread.start()
    thread.join()
    assert seen == ["a-name-of-many-"]
