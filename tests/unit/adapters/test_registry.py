# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading a registry, against one that listens here: the wire is real, the images are not."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Iterator

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters import http
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters.registry import (
    Registry,
    RegistryError,
    split,
)

INDEX = {
    "manifests": [
        {"digest": "sha256:arm", "platform": {"architecture": "arm64"}},
        {"digest": "sha256:amd", "platform": {"architecture": "amd64"}},
    ]
}


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        port = self.server.server_address[1]
        here = f"http://127.0.0.1:{port}"
        answers: dict[str, tuple[int, Any, dict[str, str]]] = {
            "/token?service=here&scope=pull": (200, {"token": "t1"}, {}),
            "/v2/open/x/tags/list?n=1000": (
                200,
                {"tags": ["v1", "v2"]},
                {"Link": '</v2/open/x/tags/list?n=2>; rel="next"'},
            ),
            "/v2/open/x/tags/list?n=2": (200, {"tags": ["v3"]}, {}),
            "/v2/open/x/manifests/sha256:index": (200, INDEX, {}),
            "/v2/open/x/manifests/sha256:amd": (200, {"config": {"digest": "sha256:config"}}, {}),
            "/v2/open/x/blobs/sha256:config": (307, {}, {"Location": f"{here}/elsewhere"}),
            "/elsewhere": (200, {"created": "2026-11-20T04:11:09Z"}, {}),
            "/v2/closed/x/tags/list?n=1000": (401, {}, {"WWW-Authenticate": 'Basic realm="x"'}),
            "/v2/odd/x/tags/list?n=1000": (200, [1], {}),
        }
        realm = f'Bearer realm="{here}/token",service="here",scope="pull"'
        answers["/v2/login/x/tags/list?n=1000"] = (401, {}, {"WWW-Authenticate": realm})
        if self.headers.get("Authorization") == "Bearer t1":
            answers["/v2/login/x/tags/list?n=1000"] = (200, {"tags": ["v9"]}, {})
            if self.path == "/elsewhere":
                answers[self.path] = (403, {}, {})
        status, body, headers = answers.get(self.path, (404, {}, {}))
        content = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_arguments: Any) -> None:
        pass


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def of(host: str, name: str) -> Registry:
    return Registry(f"{host}/{name}", http.fetch, plain_http=True)


def test_tags_come_from_every_page(host: str) -> None:
    assert of(host, "open/x").tags() == ("v1", "v2", "v3")


def test_a_token_for_nobody_is_fetched_once_and_goes_nowhere_else(host: str) -> None:
    registry = of(host, "login/x")
    assert registry.tags() == ("v9",)
    registry.repository = f"{host}/open/x"
    assert registry.created("sha256:index") == "2026-11-20T04:11:09Z"  # a redirect with the token would be refused


@pytest.mark.parametrize(("name", "why"), [("closed/x", "401"), ("gone/x", "404"), ("odd/x", "not what a registry")])
def test_why_it_is_not_told(host: str, name: str, why: str) -> None:
    with pytest.raises(RegistryError, match=why):
        of(host, name).tags()


@pytest.mark.parametrize(
    ("repository", "parts"),
    [
        ("vllm/vllm-openai", ("docker.io", "vllm/vllm-openai")),
        ("debian", ("docker.io", "library/debian")),
        ("ghcr.io/berriai/litellm", ("ghcr.io", "berriai/litellm")),
        ("registry:5000/sim-vllm", ("registry:5000", "sim-vllm")),
        ("localhost/x", ("localhost", "x")),
    ],
)
def test_which_registry(repository: str, parts: tuple[str, str]) -> None:
    assert split(repository) == parts
