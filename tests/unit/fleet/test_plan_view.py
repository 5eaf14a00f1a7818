# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What people and machines get to see of a plan."""

from __future__ import annotations

import json

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import plan_view
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.errors import WARNING, Finding

from tests.unit.fleet.fleets import MASTER_KEY, REMOVED, plan_of

STACKS = "ana-ml2/fleet_stacks"

PICTURE = """\
ana-ml2
  GPU 0               [                                                  ] kept free: hot-reloading
  GPU 1    96.00 GiB  [aaaaaaaaaaaaaaaaaaaabbbbbccccccccccccccc..........] 80% planned, 19.20 GiB left
  GPU 2    96.00 GiB  [ccccccccccccccc...................................] 30% planned, 67.20 GiB left
     stack  model     GPU  port  share  memory     floor      starts after
  a  vl     qwen-vl   1    8007  0.40   38.40 GiB  20.00 GiB
  b  embed  embedder  1    8004  0.10   9.60 GiB              vl
  c  wide   qwen-vl   1,2  8008  0.30   28.80 GiB  20.00 GiB  embed

ana-ml3
  GPU 0               [aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.....] 90% planned
     stack  model    GPU  port  share  memory  floor      starts after
  a  vl     qwen-vl  0    8007  0.90           20.00 GiB

gateway ana-docker, port 4000
  qwen-vl   vl (ana-ml2:8007), wide (ana-ml2:8008), vl (ana-ml3:8007)
  embedder  embed (ana-ml2:8004)
  vision    alias of qwen-vl"""


def test_the_picture() -> None:
    assert plan_view.text(plan_of()) == PICTURE


def test_colour_changes_no_letter() -> None:
    coloured = plan_view.text(plan_of(), colour=True)
    assert coloured != PICTURE
    for code in (plan_view.BOLD, plan_view.PLAIN):
        coloured = coloured.replace(code, "")
    assert coloured == PICTURE


@pytest.mark.parametrize(
    ("edits", "line"),
    [
        (
            [(f"{STACKS}/1/kv_cache", "4 GiB"), ("*/fleet_models/embedder/memory_floor", "2 GiB")],
            "  b  embed  embedder  1    8004  0.10   kv 4.00 GiB  2.00 GiB   vl",
        ),
        (
            [(f"{STACKS}/1/gpus", []), (f"{STACKS}/1/gpu_memory_utilization", REMOVED)],
            "  b  embed  embedder  none  8004",
        ),
        (
            [
                (f"{STACKS}/0/weight", 2),
                (f"{STACKS}/2/weight", 1),
                ("ana-ml3/fleet_stacks/0/weight", 1),
                ("ana-docker/fleet_gateway/addresses", {"ana-ml3": "10.0.0.3"}),
            ],
            "  qwen-vl   vl (ana-ml2:8007, weight 2), wide (ana-ml2:8008, weight 1), vl (10.0.0.3:8007, weight 1)",
        ),
        (
            [
                ("*/fleet_models/other", {"source": "a/b", "image": "vllm", "args": {"max_model_len": 1}}),
                ("ana-ml3/fleet_stacks/0/model", "other"),
                ("ana-docker/fleet_gateway/fallbacks", {"qwen-vl": ["other"]}),
            ],
            "  qwen-vl   vl (ana-ml2:8007), wide (ana-ml2:8008), else other",
        ),
    ],
)
def test_what_a_line_says(edits: list[tuple[str, object]], line: str) -> None:
    assert line in plan_view.text(plan_of(*edits)).splitlines()


def test_a_bar_never_grows_beyond_its_card() -> None:
    bars = plan_view.text(plan_of((f"{STACKS}/0/gpu_memory_utilization", 0.95))).splitlines()
    assert len(bars[2].split("[")[1].split("]")[0]) == plan_view.BAR
    assert "135% planned" in bars[2]


def test_findings_are_grouped_by_place_with_errors_first() -> None:
    findings = [
        Finding("w", "there", "is odd.", "Look.", WARNING),
        Finding("e", "here", "is wrong.", "Fix it."),
        Finding("w2", "here", "is odd, too.", "Look.", WARNING),
    ]
    assert plan_view.findings_text(findings) == [
        "here",
        "  error   is wrong. [e]",
        "          Fix it.",
        "  warning is odd, too. [w2]",
        "          Look.",
        "there",
        "  warning is odd. [w]",
        "          Look.",
    ]
    assert plan_view.summary(findings) == "1 error, 2 warnings"
    assert plan_view.summary([]) == "no findings"


def test_the_report_is_plain_and_without_secrets() -> None:
    made = plan_of((f"{STACKS}/0/api_key", "sk-engine-5a5a"), (f"{STACKS}/0/secrets", {"HF_TOKEN": "hf-5a5a"}))
    report = json.loads(json.dumps(plan_view.as_json(made)))
    assert "5a5a" not in json.dumps(report) + plan_view.text(made)
    assert MASTER_KEY not in json.dumps(report) + plan_view.text(made)
    assert report["refused"] is False
    assert report["hosts"]["ana-ml2"]["stacks"][2]["starts_after"] == ["embed"]
    assert report["hosts"]["ana-ml2"]["gpus"][1]["stacks"] == ["vl", "embed", "wide"]
    assert report["gateways"]["ana-docker"]["routes"]["qwen-vl"] == ["ana-ml2--vl", "ana-ml2--wide", "ana-ml3--vl"]
