"""Captures are sent to others: what sounds like a secret must not be in them, and the rest must stay readable."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.watched_processes import Pids, Reading, program

from headrace.core.watching.secrets import command_without_secrets
from headrace.probe.processes import ProcessesProbe
from headrace.probe.unseen import UnseenOnce
from headrace.records.capture import Unseen
from headrace.records.rows.process import TaskRow


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["serve", "--password=hunter2"], "serve --password=***"),
        (["serve", "--password", "hunter2", "--port", "80"], "serve --password *** --port 80"),
        (["serve", "--db-passwd=hun ter2"], "serve --db-passwd=***"),
        (["serve", "-api_key", "hunter2"], "serve -api_key ***"),
        (["env", "TOKEN=hunter2", "AWS_SECRET_ACCESS_KEY=hunter2", "serve"], "env TOKEN=*** AWS_SECRET_ACCESS_KEY=*** serve"),
        (["java", "-Djavax.net.ssl.trustStorePassword=hunter2"], "java -Djavax.net.ssl.trustStorePassword=***"),
        (["sh", "-c", "export API_TOKEN='hunter 2'; serve --secret hunter2 -v"], "sh -c export API_TOKEN=***; serve --secret *** -v"),
        (["serve", "postgres://me:hunter2@db:5432/x"], "serve postgres://***@db:5432/x"),
        (["serve", "redis://:hunter@2@db/0"], "serve redis://***@db/0"),
        (["serve", "http://h/m?access_token=hunter2&x=1"], "serve http://h/m?access_token=***&x=1"),
        (["curl", "-H", "Authorization: Bearer hunter2"], "curl -H Authorization: ***"),
        (["serve", '{"password": "hunter2", "port": 80}'], 'serve {"password": ***, "port": 80}'),
        (["serve", "--password", "--port", "80"], "serve --password --port 80"),
    ],
)  # fmt: skip
def test_what_sounds_like_a_secret_is_hidden(arguments: list[str], told: str) -> None:
    found = command_without_secrets(arguments)
    assert "hunter" not in found
    assert found.replace("Authorization: *** ***", "Authorization: ***") == told


@pytest.mark.parametrize(
    "arguments",
    [
        ["python", "-m", "uvicorn", "app:app", "--host", "0.0.0.0", "--port", "8000", "--workers", "4"],
        ["/usr/bin/tritonserver", "--model-repository=/models", "--http-port=8000"],
        ["nginx: worker process"],
        ["serve", "http://127.0.0.1:8000/predict?size=3", "user@host", "a=b"],
    ],
)
def test_what_is_none_stays(arguments: list[str]) -> None:
    assert command_without_secrets(arguments) == " ".join(arguments)


@given(st.lists(st.text(max_size=40), max_size=6))
def test_any_text_is_taken(arguments: list[str]) -> None:
    command_without_secrets([*arguments, "--token=x"])


def test_captures_have_no_secrets_of_command_lines() -> None:
    with program(
        "os.execv(sys.executable, [sys.executable, '-c', 'print(1, flush=True); input()', '--password', 'hunter2', 'x=\\x1b[31m'])"
    ) as watched:
        watched.hear()
        reading = Reading(ProcessesProbe(Pids(watched.pid)))
        rows = reading.until(TaskRow, lambda rows: rows, "who it is")
        assert rows[0].command is not None
        assert rows[0].command.endswith("--password *** x=?[31m")
        assert b"hunter2" in Path(f"/proc/{watched.pid}/cmdline").read_bytes()


def test_what_was_not_seen_is_told_without_secrets_and_steers_no_terminal() -> None:
    unseen = UnseenOnce("stages")
    unseen.add("control groups above /a\x1b[2J\nb", "/c\udcff")
    assert unseen.all() == (Unseen("stages", "control groups above /a?[2J?b", "/c?"),)
    unseen.add("stages at http://me:hunter2@h/metrics?token=hunter2", "http://me:hunter2@h is gone")
    assert "hunter2" not in repr(unseen.all())
