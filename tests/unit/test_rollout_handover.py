# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gateways send requests to what a rollout replaces: what it asks for, and what it waits for, before the stop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters.http import HttpAnswer
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters.live import Orders
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters.rollout_runner import Outcome, Rollout
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.rendered import RenderedStack

from .test_rollout_runner import CRASH, Host, roll, stack


class Served(Host):
    """Its engines have ``requests`` in flight, one fewer at each look. ``answer``: of whoever tells the gateways."""

    answer: Optional[str] = None
    requests = 0
    texts: list[str]

    def fetch(self, method: str, url: str, *rest: Any, **more: Any) -> HttpAnswer:
        if not url.endswith("/metrics"):
            return super().fetch(method, url, *rest, **more)
        self.acts.append("look")
        self.requests = max(0, self.requests - 1)
        return HttpAnswer(200, f'vllm:num_requests_running{{engine="0"}} {self.requests}.0\n'.encode())

    def released(self, name: str) -> Optional[str]:
        self.acts.append(f"asked for {name}")
        return self.answer

    def roll(self, one: RenderedStack, *routed: str) -> Outcome:
        self.acts.clear()
        self.texts = []
        world = replace(
            self.world(),
            released=self.released,
            report=lambda name, phase, text: self.texts.append(f"{phase}: {text}"),
        )
        orders = Orders(root=str(self.root), routed=routed, drain_seconds=5)
        return Rollout([one], orders, world).run()["one"]


@pytest.fixture
def host(tmp_path: Path) -> Served:
    return Served(tmp_path)


@pytest.mark.parametrize(
    ("answer", "requests", "looks", "warning"),
    [
        ("blocked", 3, 4, False),  # finished, and seen idle twice
        ("blocked", 99, 6, True),  # the limit
        ("left", 99, 0, False),  # nobody else could answer, so it is never idle
        ("failed", 99, 0, True),
        (None, 99, 0, True),  # the controller is gone
    ],
)
def test_a_running_engine_is_handed_over_before_it_stops(
    host: Served, answer: Optional[str], requests: int, looks: int, warning: bool
) -> None:
    roll(host, stack(host, "one", 0))
    host.answer, host.requests = answer, requests
    assert host.roll(stack(host, "one", 0, version="2"), "one").ended == "ready"
    before = host.acts[: host.acts.index("stop vllm-one")]
    assert before == ["asked for one", *["look"] * looks]
    assert any("[WARNING]" in text for text in host.texts) is warning
    assert host.texts.index("back: the gateways may use it again") > host.texts.index("ready: ready after 3 s")


def test_nothing_waits_where_no_gateway_routes_or_nothing_runs(host: Served) -> None:
    host.roll(stack(host, "one", 0), "one")
    assert "asked for one" not in host.acts
    host.roll(stack(host, "one", 0, version="2"))
    assert "asked for one" not in host.acts


def test_what_stays_down_is_not_used_again(host: Served) -> None:
    roll(host, stack(host, "one", 0))
    host.behaviour["one"] = [CRASH, CRASH, CRASH]
    host.answer = "blocked"
    assert host.roll(stack(host, "one", 0, version="2"), "one").ended == "stopped"
    assert "asked for one" in host.acts
    assert not [text for text in host.texts if text.startswith("back")]
