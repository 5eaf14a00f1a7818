# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A second, real LiteLLM whose configuration loses things, and what the comparison with the engine says of each."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters import gateway_runner, http
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import gateway_files
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.gateway_files import (
    Asked,
    RenderedGateway,
    Route,
)

ROOT = Path(__file__).resolve().parents[3]
KEY, PORT, NAME = "sk-comparison-0123456789", 4010, "gateway-that-loses"
MODEL, OTHER = "qwen3.5-9b-fp8", "granite-summarizer"
ENGINE = "http://ana-ml2:8007/v1"
VLLM = {"model": f"hosted_vllm/{MODEL}", "api_base": ENGINE}
LOSING = {
    # A provider that knows texts only: it makes one of the messages and looks for no reasoning in the answer.
    "texts-only": {"model": f"text-completion-openai/{MODEL}", "api_base": ENGINE, "api_key": "none"},
    "no-parameter": {**VLLM, "additional_drop_params": ["response_format"]},
}
CONFIG: dict[str, Any] = {
    "model_list": [
        {"model_name": MODEL, "litellm_params": VLLM, "model_info": {"id": "right", "supports_vision": False}},
        {
            "model_name": OTHER,
            "litellm_params": {"model": f"hosted_vllm/{OTHER}", "api_base": "http://ana-ml2:8003/v1"},
            "model_info": {"id": "other"},
        },
        *(
            {"model_name": name, "litellm_params": parameters, "model_info": {"id": name, "mode": "chat"}}
            for name, parameters in LOSING.items()
        ),
    ],
    "litellm_settings": {"drop_params": True},
    "router_settings": {"num_retries": 0, "model_group_alias": {"see": OTHER}},
    "general_settings": {"master_key": KEY},
}
CHAT = {"task": "chat", "modalities": ["text", "image"], "thinking": True, "structured": True}


@pytest.fixture(scope="module")
def losing(request: Any) -> Any:
    """losing(name, question, *routes) -> the gateway as the inventory would have it, with one name to ask."""
    import testinfra

    lab = json.loads(subprocess.check_output([ROOT / "lab" / "lab", "status", "--json"], text=True))
    state = ROOT / ".cache" / "lab" / os.environ.get("LAB_NAME", "modelfleet")
    host = testinfra.get_host("ssh://ana-docker", ssh_config=str(state / "ssh_config"))
    folder = f"/tmp/{NAME}"
    host.check_output(f"mkdir -p {folder}; printf %s {shlex.quote(json.dumps(CONFIG))} > {folder}/config.yaml")
    image = host.check_output("docker inspect -f '{{.Config.Image}}' litellm")
    host.check_output(
        f"docker rm -f {NAME} >/dev/null 2>&1; docker run -d --name {NAME} --network host -v {folder}:/etc/losing:ro "
        f"{image} --config /etc/losing/config.yaml --port {PORT}"
    )
    url = f"http://{lab['ana-docker']['address']}:{PORT}"
    deadline = time.monotonic() + 300
    while http.fetch("GET", f"{url}/health/readiness", timeout=5).status != 200:
        assert time.monotonic() < deadline, host.run(f"docker logs --tail 30 {NAME} 2>&1").stdout
        time.sleep(1)
    engine = f"http://{lab['ana-ml2']['address']}:8007"

    def make(name: str, question: str, *route_ids: str) -> RenderedGateway:
        asked = Asked(
            name,
            "",
            {**CHAT, **({"modalities": ["text"]} if question == "structured_output" else {}), "questions": [question]},
            route_ids,
            MODEL,
        )
        routes = tuple(
            Route(each, MODEL, "chat", True, engine, "", host="ana-ml2", stack="qwen35-vl", blocked=False)
            for each in route_ids
        )
        return RenderedGateway(
            host="ana-docker", directory="", container=NAME, image=image, url=url, user="", timeout=60, workers=1,
            drain_seconds=0, files={},
            service_definition={}, hash="", config_mark="", models=0, routes=routes, asked=(asked,),
            smallest_context=("", 0), replaced_on_overflow=(), master_key=KEY, clients=(), secrets=(),
        )  # fmt: skip

    yield make
    host.check_output(f"docker rm -f {NAME}; rm -rf {folder}")


def outcome(gateway: RenderedGateway) -> dict[str, Any]:
    return gateway_runner._ask_name(gateway, gateway.asked[0], 7, http.fetch)


@pytest.mark.parametrize("question", ["image_number", "structured_output", "thinking_on"])
def test_a_right_route_loses_nothing(losing: Any, question: str) -> None:
    assert outcome(losing(MODEL, question, "right"))["code"] == "passed"


@pytest.mark.parametrize(
    ("name", "question", "code"),
    [
        ("texts-only", "image_number", "gateway_picture_dropped"),
        ("texts-only", "thinking_on", "gateway_reasoning_lost"),
        ("no-parameter", "structured_output", "gateway_parameter_swallowed"),
        ("see", "text", "gateway_wrong_group"),
    ],
)
def test_what_is_lost_on_the_way_has_a_code(losing: Any, name: str, question: str, code: str) -> None:
    got = outcome(losing(name, question, "right" if name == "see" else name))
    assert (got["passed"], got["code"]) == (False, code), got
    assert got["remedy"]


def test_a_vision_flag_that_is_not_the_models_is_drift(losing: Any) -> None:
    gateway = losing(MODEL, "image_number", "right")
    told = gateway_runner.tell(gateway, http.fetch, 1)
    found = {each.item: (each.want, each.have) for each in gateway_files.differing(gateway, told)}
    assert found["route right supports_vision"] == ("True", "False")
