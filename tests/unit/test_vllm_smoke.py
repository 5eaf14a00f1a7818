# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module as Ansible runs it, a process with JSON arguments, against a server that adds but does not see."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Iterator

import pytest

ROOT = Path(__file__).parents[2]
KEY = "sk-not-for-any-output"


class Blue(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        ask = body["messages"][0]["content"]
        said = str(sum(map(int, re.findall(r"\d+", ask)))) if isinstance(ask, str) else "blue"
        content = json.dumps({"choices": [{"message": {"content": said}, "finish_reason": "stop"}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    running = ThreadingHTTPServer(("127.0.0.1", 0), Blue)
    threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"http://127.0.0.1:{running.server_port}"
    running.shutdown()
    running.server_close()


def run(**args: Any) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(ROOT / "plugins/modules/vllm_smoke.py")],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": {**args, "_ansible_remote_tmp": "/tmp"}}),
        env={**os.environ, "PYTHONPATH": str(ROOT / ".ansible/collections")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert KEY not in done.stdout + done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_text_passes(server: str) -> None:
    result = run(url=server, model="m", api_key=KEY)
    assert (result["passed"], result["changed"], result.get("failed", False)) == (True, False, False)
    (stack,) = result["stacks"]
    assert (stack["name"], stack["code"], len(stack["answers"])) == ("m", "passed", 1)


def test_the_blind_one_of_two_is_named_with_cause_and_remedy(server: str) -> None:
    sees = {"name": "text-only", "url": server, "model": "m"}
    blind = {"name": "vl", "url": server, "model": "m", "modalities": ["text", "image"], "api_key": KEY}
    result = run(stacks=[sees, blind], seed=7, _ansible_check_mode=True)
    assert result["failed"]
    assert [(stack["name"], stack["code"]) for stack in result["stacks"]] == [
        ("text-only", "passed"),
        ("vl", "vision_blind"),
    ]
    assert result["seed"] == 7
    assert result["msg"].startswith(f"vl ({server}): The text works")
    assert "Use an engine build" in result["msg"]
    assert result["stacks"][1]["answers"][1]["pictures"]


def test_only_these_stacks(server: str) -> None:
    stacks = [{"name": name, "url": server, "model": "m"} for name in ("one", "two")]
    assert [stack["name"] for stack in run(stacks=stacks, only=["two"])["stacks"]] == ["two"]


def test_a_stack_that_is_not_there_is_an_error(server: str) -> None:
    result = run(stacks=[{"name": "qwen35-vl", "url": server, "model": "m"}], only=["qwen35-v1"])
    assert result["failed"]
    assert "qwen35-vl" in result["msg"]


def test_an_own_check_alone(server: str) -> None:
    result = run(
        url=server, model="m", image="data:image/png;base64,AAAA", ask="Which colour?", expect=[["red", "blue"]]
    )
    assert [answer["question"] for answer in result["stacks"][0]["answers"]] == ["check_1"]
    assert result["passed"]


def test_every_run_draws_its_own_pictures(server: str) -> None:
    seeds = {run(url=server, model="m")["seed"] for _ in range(3)}
    assert len(seeds) == 3


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({}, "one of the following is required: url, stacks"),
        ({"url": "http://127.0.0.1:1"}, "required together: url, model"),
        ({"url": "http://127.0.0.1:1", "model": "m", "ask": "What?"}, "required together: ask, expect"),
        ({"url": "http://127.0.0.1:1", "model": "m", "questions": ["image_nunber"]}, "question_unknown"),
    ],
)
def test_wrong_arguments(args: dict[str, Any], said: str) -> None:
    result = run(**args)
    assert result["failed"]
    assert said in result["msg"]
