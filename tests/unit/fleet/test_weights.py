# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which weights a host needs from the hub, and what is said when it cannot have them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import compose, weights
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.compose import StackSettings
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.model import Image, Model, Stack

GIB = 1024**3
IMAGE = Image("vllm", "vllm/vllm-openai", "sha256:" + "32" * 32, tag="v0.32.0", engine="0.32.0")
MODEL = Model("qwen", "Qwen/Qwen3.5-9B", "vllm", revision="c" * 40)
SETTINGS = StackSettings(hub_token="hf_secret")


def stack(name="one", model=MODEL, **changes):
    values = {
        "host": "ana",
        "position": 0,
        "name": name,
        "model": model,
        "image": IMAGE,
        "gpus": (0,),
        "port": 8001,
        "container": f"vllm-{name}",
        "args": {},
        "env": {},
        "secrets": {},
        "checks": (),
        **changes,
    }
    return Stack(**values)


def rendered(*stacks, settings=SETTINGS):
    return [compose.render(one, settings) for one in stacks]


def test_one_revision_is_fetched_once_for_all_that_share_it():
    other = replace(MODEL, revision="d" * 40)
    found = weights.wanted(rendered(stack("one"), stack("two", port=8002), stack("three", other, port=8003)))
    assert [(one.label, one.stacks) for one in found] == [
        ("Qwen/Qwen3.5-9B@cccccccccccc", ("one", "two")),
        ("Qwen/Qwen3.5-9B@dddddddddddd", ("three",)),
    ]
    assert (found[0].cache, found[0].home) == ("/opt/models/hub", "/root/.cache/huggingface")
    assert found[0].image == IMAGE.reference


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"model": Model("local", "/opt/models/local", "vllm")}, id="a folder on the host"),
        pytest.param({"args": {"download_dir": "/elsewhere"}}, id="elsewhere"),
        pytest.param({"env": {"HF_HOME": "/not/mounted"}}, id="a cache inside the container"),
        pytest.param({"compose": {"volumes": ["named:/root/.cache/huggingface"]}}, id="a named volume"),
    ],
)
def test_what_is_not_in_the_hub_cache_is_left_to_the_engine(changes):
    assert weights.wanted(rendered(stack(**changes))) == []


def test_only_what_decides_how_the_hub_is_reached_goes_along():
    env = {"HF_ENDPOINT": "http://mirror", "https_proxy": "http://proxy", "CUDA_LAUNCH_BLOCKING": "1"}
    service = {"user": "1000:1000", "network_mode": "host"}
    (one,) = weights.wanted(rendered(stack(env=env, secrets={"OTHER": "x"}, compose=service)))
    assert dict(one.environment) == {
        "HF_ENDPOINT": "http://mirror",
        "HF_HOME": "/root/.cache/huggingface",
        "HF_TOKEN": "hf_secret",
        "https_proxy": "http://proxy",
    }
    assert (one.user, one.network) == ("1000:1000", "host")


def test_folders_and_their_modes():
    settings = StackSettings(media_cache="/srv/media")
    (one,) = rendered(stack(compose={"volumes": ["/etc/ssl:/etc/ssl:ro"]}), settings=settings)
    assert one.folders == {
        "/opt/models/hub": "0755",
        "/opt/models/vllm-cache/323232323232/qwen": "0755",
        "/srv/media/one": "0700",
    }


def test_no_space_names_everything_a_person_needs():
    (one,) = weights.wanted(rendered(stack()))
    fact = weights.no_space(one, {"missing": 18 * GIB, "total": 20 * GIB, "free": 7 * GIB}, "ana")
    assert fact["code"] == "weights_no_space"
    assert fact["what"] == (
        "Qwen/Qwen3.5-9B@cccccccccccc needs 18.00 GiB more in /opt/models/hub of ana, and only 7.00 GiB are free there"
    )
    assert "vllm_stack_hub_cache" in fact["change"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("ConnectError: [Errno 111] Connection refused", "hub_unreachable"),
        ("ConnectTimeout: timed out", "hub_unreachable"),
        ("ConnectionError: HTTPSConnectionPool: Temporary failure in name resolution", "hub_unreachable"),
        ("IncompleteSnapshotError: The cached snapshot is incomplete: 1 file(s) are missing", "hub_offline_not_cached"),
        ("the container ended with status 137", "weights_not_fetched"),
    ],
)
def test_failures(text, code):
    (one,) = weights.wanted(rendered(stack(env={"HF_ENDPOINT": "http://mirror"})))
    fact = weights.failed(one, text)
    assert (fact["code"], text in fact["what"], bool(fact["change"])) == (code, True, True)
    assert ("http://mirror" in fact["why"]) == (code == "hub_unreachable")
    assert "hf_secret" not in str(fact)


def test_what_a_person_sees():
    (one,) = weights.wanted(rendered(stack()))
    size = {"event": "size", "total": 20 * GIB, "missing": 5 * GIB, "free": 0}
    assert weights.told(one, size) == "fetching Qwen/Qwen3.5-9B@cccccccccccc: 5.00 GiB of 20.00 GiB are missing"
    assert weights.told(one, {"event": "progress", "have": 1, "total": 3}) == "fetching weights 33 %"
    assert weights.percent({"have": 0, "total": 0}) == 100
