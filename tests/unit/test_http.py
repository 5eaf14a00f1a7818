# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HTTP and the asker against a real server on a real socket."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Iterator

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters import asker
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters.http import fetch

KEY = "sk-for-the-test"


class Handler(BaseHTTPRequestHandler):
    """Adds two numbers; sees nothing."""

    seen: list[dict[str, Any]] = []  # noqa: RUF012
    gate = threading.Event()

    def do_GET(self) -> None:
        if self.path == "/never":
            self.gate.wait(10)
            return
        if self.path == "/half":
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b"half")
            return
        self.answer(
            200 if self.path.startswith("/picture") else 404, b"\x89PNG rest" if "good" in self.path else b"<html>"
        )

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.append({"body": body, "key": self.headers.get("Authorization"), "path": self.path})
        if self.headers.get("Authorization") != f"Bearer {KEY}":
            self.answer(401, b'{"error":"Unauthorized"}')
            return
        ask = body["messages"][0]["content"]
        said = (
            str(sum(int(word.strip("?")) for word in ask.split() if word.strip("?").isdigit()))
            if isinstance(ask, str)
            else "blue"
        )
        message = {"choices": [{"message": {"content": said}, "finish_reason": "stop"}]}
        self.answer(200, json.dumps(message).encode())

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    Handler.seen, Handler.gate = [], threading.Event()
    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"http://127.0.0.1:{running.server_port}"
    Handler.gate.set()
    running.shutdown()
    running.server_close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_an_answer_has_status_body_and_time(server: str) -> None:
    got = fetch("GET", f"{server}/missing?x=1", timeout=5)
    assert (got.status, got.body, got.error) == (404, b"<html>", "")
    assert got.json() is None
    assert got.seconds > 0


def test_proxies_of_the_environment_are_not_used(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    assert fetch("GET", f"{server}/picture-good", timeout=5).status == 200


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://127.0.0.1:{closed}/x", "refused"),
        ("{server}/never", "timed out after 0.2 s"),
        ("{server}/half", "broke off after 4 bytes"),
        ("ftp://127.0.0.1/x", "no http(s) address"),
        ("127.0.0.1:8007", "no http(s) address"),
        ("http://127.0.0.1:port/x", "port"),
        ("http://no-such-host.invalid/x", ""),
    ],
)
def test_trouble_is_a_value(server: str, url: str, said: str) -> None:
    got = fetch("GET", url.format(server=server, closed=free_port()), timeout=0.2)
    assert got.status == 0
    assert got.error
    assert said.lower() in got.error.lower()


def test_the_asker_sends_name_and_key_and_keeps_no_key(server: str) -> None:
    told: list[str] = []
    verdicts = asker.ask(server, "m", {"modalities": ["text", "image"]}, seed=1, api_key=KEY, timeout=5,
                         progress=lambda verdict: told.append(verdict["question"]))  # fmt: skip
    assert [verdict["question"] for verdict in verdicts] == told
    assert told[0] == "text"
    assert verdicts[0]["passed"]
    assert {verdict["code"] for verdict in verdicts[1:]} <= {"answer_wrong", "vision_constant_answer"}
    assert {(each["body"]["model"], each["key"], each["path"]) for each in Handler.seen} == {
        ("m", f"Bearer {KEY}", "/v1/chat/completions")
    }
    assert KEY not in json.dumps(verdicts)


def test_a_wrong_key_ends_the_asking(server: str) -> None:
    verdicts = asker.ask(server, "m", {"modalities": ["text", "image"]}, seed=1, api_key="wrong", timeout=5)
    assert [verdict["code"] for verdict in verdicts] == ["api_key_refused"]


def test_nobody_there_ends_the_asking() -> None:
    verdicts = asker.ask(f"http://127.0.0.1:{free_port()}", "m", {"modalities": ["text", "image"]}, seed=1, timeout=5)
    assert [verdict["code"] for verdict in verdicts] == ["no_connection"]
    assert verdicts[0]["retryable"]


def test_a_picture_by_path_url_or_data_url(server: str, tmp_path: Path) -> None:
    file = tmp_path / "cats.jpg"
    file.write_bytes(b"\xff\xd8 cats")
    assert asker.read_picture(str(file)).startswith("data:image/jpeg;base64,")
    assert asker.read_picture(f"{server}/picture-good").startswith("data:image/png;base64,")
    assert asker.read_picture("data:image/png;base64,AAAA") == "data:image/png;base64,AAAA"


@pytest.mark.parametrize("source", ["{tmp}/missing.png", "{tmp}/page.html", "{server}/picture-bad", "{server}/missing"])
def test_no_picture(server: str, tmp_path: Path, source: str) -> None:
    (tmp_path / "page.html").write_text("<html>")
    with pytest.raises(ValueError, match="The picture"):
        asker.read_picture(source.format(tmp=tmp_path, server=server), timeout=5)
