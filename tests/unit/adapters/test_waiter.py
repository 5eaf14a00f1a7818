# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waiting for real servers on this machine; only Docker and the clock are played."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Optional

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters.http import fetch
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters.waiter import Endpoint, Waited, wait


class Engine(ThreadingHTTPServer):
    """A model server that is ready after so many looks at /health."""

    def __init__(self, name: str, ready_after: int = 0, key: str = "") -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.name, self.ready_after, self.key, self.looks = name, ready_after, key, 0
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()


class Handler(BaseHTTPRequestHandler):
    server: Engine

    def do_GET(self) -> None:
        engine = self.server
        if self.path == "/health":
            engine.looks += 1
            return self.answer(200 if engine.looks > engine.ready_after else 404)
        if engine.key and self.headers.get("Authorization") != f"Bearer {engine.key}":
            return self.answer(401)
        return self.answer(200, {"data": [{"id": engine.name, "root": "/m", "max_model_len": 2048}]})

    def answer(self, status: int, body: Any = "") -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def engines() -> Iterator[dict[str, Engine]]:
    made = {"a": Engine("a"), "b": Engine("b", ready_after=3), "locked": Engine("locked", key="right")}
    yield made
    for engine in made.values():
        engine.shutdown()
        engine.server_close()


class Time:
    """Seconds that pass only by sleeping."""

    def __init__(self) -> None:
        self.now, self.lock = 0.0, threading.Lock()

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        with self.lock:
            self.now += seconds


def no_docker(name: str, after: float) -> tuple[Optional[dict[str, Any]], list[tuple[float, str]]]:
    raise AssertionError("Docker is asked only for endpoints with a container")


def waited(*endpoints: Endpoint, look: Any = no_docker, once: bool = False) -> list[Waited]:
    time = Time()
    return wait(endpoints, fetch=fetch, look=look, clock=time.clock, sleep=time.sleep, once=once)


def test_many_servers_are_waited_for_at_once_and_each_has_its_own_outcome(engines: dict[str, Engine]) -> None:
    a, b, wrong, nobody = waited(
        Endpoint(engines["a"].url, "a", root="/m"),
        Endpoint(engines["b"].url, "b"),
        Endpoint(engines["a"].url, "other"),
        Endpoint("http://127.0.0.1:1", "x", timeout_s=3),
    )
    assert (a.state.verdict, a.state.max_model_len, a.models) == ("ready", 2048, ("a",))
    assert b.state.verdict == "ready"
    assert engines["b"].looks == 4
    assert wrong.state.code == "served_name_mismatch"
    assert nobody.state.code == "deadline"


def test_a_key_opens_the_list_of_models(engines: dict[str, Engine]) -> None:
    url = engines["locked"].url
    right, wrong = waited(Endpoint(url, "locked", api_key="right"), Endpoint(url, "locked", api_key="wrong"))
    assert right.state.verdict == "ready"
    assert wrong.state.code == "api_key_rejected"
    assert "wrong" not in repr(wrong.state)


def test_looking_once_does_not_wait(engines: dict[str, Engine]) -> None:
    (b,) = waited(Endpoint(engines["b"].url, "b"), once=True)
    assert (b.state.verdict, engines["b"].looks) == ("waiting", 1)


def test_a_container_that_ends_ends_the_wait_with_what_its_log_says() -> None:
    log = [
        [(10.0, "INFO 11-30 20:20:28 [a.py:1] Starting to load model x...")],
        [(11.0, "WARNING 11-30 20:20:29 [a.py:1] Cannot find any model weights with `/m`")],
    ]
    asked_after = []

    def look(name: str, after: float) -> tuple[Optional[dict[str, Any]], list[tuple[float, str]]]:
        asked_after.append(after)
        ended = len(asked_after) > 2
        state = {"Status": "exited" if ended else "running", "ExitCode": 1, "OOMKilled": False}
        return {"Id": name, "State": state, "RestartCount": 0}, [] if ended else log[len(asked_after) - 1]

    (one,) = waited(Endpoint("http://127.0.0.1:1", "x", container="c"), look=look)
    assert (one.state.code, one.state.phase) == ("weights_missing", "loading weights")
    assert one.state.seconds == 2
    assert asked_after == [0.0, 10.0, 11.0]


def test_a_port_that_answers_for_a_container_that_has_ended_is_somebody_elses(engines: dict[str, Engine]) -> None:
    def look(name: str, after: float) -> tuple[Optional[dict[str, Any]], list[tuple[float, str]]]:
        return {"Id": name, "State": {"Status": "exited", "ExitCode": 1}, "RestartCount": 0}, []

    (one,) = waited(Endpoint(engines["a"].url, "a", container="c"), look=look)
    assert one.state.code == "port_answered_by_other"
