"""`headrace serve` as a process: what it says, when it is ready, how it ends."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import tiny_models
from headrace.errors import UsageError
from headrace.serve.server import Server
from pictures import assets
from server_process import (
    Serving,
    ask,
    ask_json,
    free_port,
    inside,
    picture_bytes,
    run,
    serving,
    until,
)

FREE_PORTS = ("--server-port", "0", "--server-metrics-port", "0")
ONE_AT_A_TIME = ("--batch-max-items", "1", "--batch-in-flight", "1")


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text("[recipe]\nwidth = 32\nheight = 32\n")
    return path


@pytest.fixture
def emulated(recipe: Path) -> Iterator[Serving]:
    with serving("--recipe", recipe, "--accelerator", "emulated:1ms+0ms", *FREE_PORTS) as server:
        yield server


def wait_listening(port: int) -> None:
    def answers() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    until(answers, f"port {port} listens")


def test_announces_its_ports_answers_on_both_and_ends_on_sigint(emulated: Serving) -> None:
    port, metrics_port = emulated.wait_announced()
    assert port != metrics_port
    assert ask_json(port, "/readyz") == (200, {"ready": True})
    status, body = ask(port, "POST", "/predict", picture_bytes())
    assert status == 200
    assert json.loads(body)["emulated"] is True

    status, text = ask(metrics_port, "GET", "/metrics")
    assert status == 200 and b"headrace_device_images_total" in text
    status, plan = ask_json(metrics_port, "/plan")
    assert status == 200 and [stage["stage"] for stage in plan["stages"]] == ["decode", "resize", "infer"]
    assert ask_json(metrics_port, "/livez") == (200, {"live": True})
    assert ask(metrics_port, "HEAD", "/metrics") == (200, b"")
    status, error = ask_json(metrics_port, "/metricz")
    assert status == 404 and error["code"] == "not_found" and "/metricz" in error["error"]

    code, out, err = emulated.stop(signal.SIGINT)
    assert (code, err) == (0, "")
    assert "EMULATED" in out


def test_sigterm_while_a_request_is_under_way(recipe: Path) -> None:
    port, metrics_port = free_port(), free_port()
    ports = ("--server-port", str(port), "--server-metrics-port", str(metrics_port))
    slow = ("--accelerator", "emulated:800ms+0ms", *ONE_AT_A_TIME)
    with serving("--recipe", recipe, *slow, *ports) as server, ThreadPoolExecutor() as pool:
        wait_listening(port)
        status, body = ask_json(port, "/readyz")
        assert status == 503 and "warming up batch sizes 1" in body["error"]
        assert ask(port, "POST", "/predict", picture_bytes())[0] == 503
        server.wait_announced()
        assert ask_json(port, "/readyz") == (200, {"ready": True})

        under_way = pool.submit(ask, port, "POST", "/predict", picture_bytes())
        until(lambda: inside(metrics_port) == 1, "the request is inside")
        server.process.send_signal(signal.SIGTERM)
        until(lambda: refused(port), "new requests are refused")
        assert under_way.result()[0] == 200
        code, _, err = server.wait_ended()
        assert (code, err) == (0, "")


def refused(port: int) -> bool:
    try:
        status, body = ask(port, "GET", "/readyz")
    except OSError:
        return True
    return status == 503 and b"draining" in body


def test_requests_that_outlast_the_drain_are_cut_off_with_exit_75(recipe: Path) -> None:
    slow = ("--accelerator", "emulated:1500ms+0ms", *ONE_AT_A_TIME, "--server-drain-s", "0.05")
    with serving("--recipe", recipe, *slow, *FREE_PORTS) as server, ThreadPoolExecutor() as pool:
        port, metrics_port = server.wait_announced()
        under_way = pool.submit(ask, port, "POST", "/predict", picture_bytes())
        until(lambda: inside(metrics_port) == 1, "the request is inside")
        code, _, err = server.stop()
        assert code == 75
        assert err.count("\n") == 1 and "server.drain_s=0.05" in err
        try:
            assert under_way.result()[0] >= 500
        except (OSError, ValueError) as cut:
            assert "Remote end closed" in str(cut) or isinstance(cut, ConnectionError)


def test_sigterm_while_warming_up_does_not_wait_for_the_model(recipe: Path) -> None:
    port = free_port()
    ports = ("--server-port", str(port), "--server-metrics-port", "0")
    with serving("--recipe", recipe, "--accelerator", "emulated:3600000ms+0ms", *ports) as server:
        wait_listening(port)
        assert ask(port, "GET", "/livez")[0] == 200
        assert ask(port, "GET", "/readyz")[0] == 503
        code, out, err = server.stop()
        assert (code, out, err) == (0, "", "")


def test_a_taken_port_is_named_before_the_model_is_looked_at(tmp_path: Path, recipe: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        broken = tmp_path / "broken.onnx"
        broken.write_bytes(b"no model")
        ended = run(
            "serve", broken, "--recipe", recipe, "--server-metrics-port", "0", "--server-port", str(port)
        )
        assert_one_line(ended.stderr, f"127.0.0.1 port {port}", "server.port")
        assert ended.returncode == 64
        metrics = ("--server-port", "0", "--server-metrics-port", str(port))
        ended = run("serve", broken, "--recipe", recipe, *metrics)
        assert_one_line(ended.stderr, f"port {port}", "server.metrics_port")
        assert ended.returncode == 64


def test_a_port_is_taken_before_anything_is_served_there() -> None:
    first = Server("127.0.0.1", 0, 0)
    try:
        with pytest.raises(UsageError, match=f"port {first.port} .*server.port"):
            Server("127.0.0.1", first.port, 0)
    finally:
        for bound in first._sockets:
            bound.close()


def assert_one_line(text: str, *parts: str) -> None:
    assert text.startswith("headrace: ") and text.count("\n") == 1 and text.endswith("\n"), text
    for part in parts:
        assert part in text, text


@pytest.mark.parametrize(
    ("arguments", "code", "parts"),
    [
        (("gone.onnx",), 65, ("gone.onnx",)),
        (("broken.onnx",), 65, ("broken.onnx",)),
        (("wide.onnx",), 65, ("wide.onnx",)),
        (("gone.onnx", "--recipe", "gone.toml"), 64, ("gone.toml",)),
        (("gone.onnx", "--recipe", "odd.toml"), 64, ("odd.toml", "widht")),
        (("gone.onnx", "--batch-max-items", "many"), 64, ("batch.max_items='many'",)),
        ((), 64, ("model",)),
        (("--accelerator", "emulated"), 64, ("emulated:2ms+5ms",)),
        (("--accelerator", "emulated:5ms+1ms", "--server-host", "a..b"), 64, ("a..b", "server.port")),
    ],
)
def test_what_cannot_be_served_is_one_line(
    tmp_path: Path, arguments: tuple[str, ...], code: int, parts: tuple[str, ...]
) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    (tmp_path / "odd.toml").write_text("[recipe]\nwidht = 32\nheight = 32\n")
    (tmp_path / "recipe.toml").write_text("[recipe]\nwidth = 32\nheight = 32\n")
    tiny_models.saved(tiny_models.classifier(dims=("n", 7, 32, 32)), tmp_path, "wide.onnx")
    given = arguments if "--recipe" in arguments else (*arguments, "--recipe", "recipe.toml")
    ended = run("serve", *given, *FREE_PORTS, cwd=tmp_path)
    assert ended.returncode == code, ended.stderr
    assert_one_line(ended.stderr, *parts)
    assert ended.stdout == ""


def fails_from_four() -> onnx.ModelProto:
    """Looks the batch size up in a table of four rows: batches of one to three run, larger ones do not."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["n"], axis=0),
        helper.make_node("Gather", ["table", "n"], ["none"], axis=0),
        helper.make_node("Add", ["x", "none"], ["y"]),
    ]
    dims = ["n", 3, 8, 8]
    return tiny_models.graph(
        nodes,
        [("x", tiny_models.FLOAT, dims)],
        [("y", tiny_models.FLOAT, dims)],
        {"zero": np.int64(0), "table": np.zeros(4, np.float32)},
    )


def test_a_model_that_fails_its_warm_up_never_becomes_ready(tmp_path: Path) -> None:
    model = tiny_models.saved(fails_from_four(), tmp_path)
    (tmp_path / "model.recipe.toml").write_text("[recipe]\nwidth = 8\nheight = 8\n")
    port, metrics_port = free_port(), free_port()
    ports = ("--server-port", str(port), "--server-metrics-port", str(metrics_port))
    with serving(model, "--accelerator", "cpu", "--batch-max-items", "4", *ports) as server:
        wait_listening(port)
        until(lambda: b"warm-up failed" in ask(port, "GET", "/readyz")[1], "the warm-up has failed")
        status, body = ask_json(port, "/readyz")
        assert status == 503 and "warm-up failed: " in body["error"]
        assert ask(port, "GET", "/livez")[0] == 200
        assert ask(port, "POST", "/predict", picture_bytes())[0] == 503
        assert b"headrace_ready{" in ask(metrics_port, "GET", "/metrics")[1]
        code, out, err = server.stop()
        assert code == 0 and out == ""
        assert "warm-up failed" in err and "Traceback" not in err


def test_listens_on_ipv6_and_says_so(recipe: Path) -> None:
    if not ipv6():
        pytest.skip("this machine has no IPv6 loopback")
    arguments = ("--recipe", recipe, "--accelerator", "emulated:1ms+0ms", "--server-host", "::1")
    with serving(*arguments, *FREE_PORTS) as server:
        port, metrics_port = server.wait_announced()
        assert f"http://[::1]:{port}/predict" in server.announced[0]
        assert ask(port, "POST", "/predict", picture_bytes(), host="::1")[0] == 200
        assert ask(metrics_port, "GET", "/metrics", host="::1")[0] == 200
        assert server.stop()[0] == 0


def ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_serves_the_real_model() -> None:
    files = assets()
    arguments = ("--accelerator", "cpu", "--recipe", files.recipe, *FREE_PORTS)
    with serving(files.model, *arguments) as server:
        port, metrics_port = server.wait_announced()
        path, label = next(iter(files.answers.items()))
        status, body = ask(port, "POST", "/predict", Path(path).read_bytes())
        assert status == 200
        answer = json.loads(body)
        assert answer["predictions"][0]["label"] == label and "emulated" not in answer
        assert b'model="efficientnet_lite0"' in ask(metrics_port, "GET", "/metrics")[1]
        assert server.stop()[:1] == (0,)
