# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the modules say of a host, as differences, as warnings, and as what could not be looked at."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import host_drift
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.errors import ERROR, WARNING, Finding

ENGINE = {"there": True, "answers": True, "version": "26.1.5+dfsg1", "missing": [], "error": ""}
NVIDIA: dict[str, Any] = {
    "toolkit": "1.18.1", "need": {"packages": []}, "generate_cdi": False, "start_persistence": False,
    "boot_unit": {"name": "nodes.service", "write": False}, "trouble": None, "cards": [],
}  # fmt: skip
CONFIG = {"changed": False, "changes": [], "pending": [], "applied_by": "nothing"}
CHANGE = {"key": "runtimes.nvidia", "have": None, "want": {"path": "x"}, "how": "reload"}


def info(engine: Any = None, nvidia: Any = None, findings: Any = ()) -> dict[str, Any]:
    return {
        "engine": {**ENGINE, **(engine or {})},
        "nvidia": {**NVIDIA, **(nvidia or {})},
        "findings": [asdict(each) for each in findings],
    }


def finding(code: str, severity: str = ERROR) -> Finding:
    return Finding(code, "place", "problem", "remedy", severity, "h")


@pytest.mark.parametrize(
    ("there", "config", "expected"),
    [
        (info(), CONFIG, []),
        (info({"missing": ["compose", "sdk"]}), CONFIG,
         [("Docker Compose", "installed", "(none)", "install"),
          ("Docker SDK for Python", "installed", "(none)", "install")]),
        (info(), {**CONFIG, "changed": True, "changes": [CHANGE]},
         [("daemon.json runtimes.nvidia", '{"path": "x"}', "not set", "reload")]),
        (info(), {**CONFIG, "pending": ['log-driver: not set -> "local"']},
         [("daemon.json log-driver", '"local"', "not set", "report")]),
        (info(), {**CONFIG, "pending": ["the hook came after Docker had started"]},
         [("Docker Engine", "restarted", "the hook came after Docker had started", "report")]),
        (info(), {**CONFIG, "changed": True, "applied_by": "restart"},
         [("Docker Engine", "as its daemon.json", "older", "restart")]),
        (info(nvidia={"need": {"packages": ["nvidia-container-toolkit"]}, "toolkit": ""}), CONFIG,
         [("NVIDIA Container Toolkit", "installed", "(none)", "install")]),
        (info(nvidia={"generate_cdi": True}), CONFIG,
         [("CDI specification", "of the cards that are there", "without cards that are there", "write")]),
        (info(nvidia={"generate_cdi": True, "cdi_stale": "libcuda.so.580 is gone"}), CONFIG,
         [("CDI specification", "of the cards that are there", "libcuda.so.580 is gone", "write")]),
        (info(nvidia={"boot_unit": {"name": "nodes.service", "write": True}}), CONFIG,
         [("unit nodes.service", "as rendered", "differs", "write")]),
        (info(nvidia={"start_persistence": True}), CONFIG,
         [("nvidia-persistenced", "active", "inactive", "start")]),
        # What a run stops at is a person's; it is said once.
        (info(findings=[finding("gpu_uuid_differs"), finding("compose_missing"), finding("mig_enabled", WARNING)]),
         CONFIG, [("gpu_uuid_differs", "as in the inventory", "problem", "report")]),
        (info(nvidia={"trouble": {"code": "gpu_lost"}}, findings=[finding("gpu_lost")]), CONFIG, []),
    ],
)  # fmt: skip
def test_differences(there: dict[str, Any], config: dict[str, Any], expected: list[tuple[str, ...]]) -> None:
    found = host_drift.compare(there, config, manages=(True, True))
    assert [(one.item, one.want, one.have, one.action) for one in found] == expected


def test_what_is_not_managed_is_left_to_a_person() -> None:
    there = info({"missing": ["sdk"]}, {"generate_cdi": True, "start_persistence": True})
    assert {one.action for one in host_drift.compare(there, {}, manages=(False, False))} == {"report"}


@pytest.mark.parametrize(
    ("want", "differs"),
    [("", False), ("1.18.1", False), ("1.18", False), ("1.1", True), ("1.17.8", True)],
)
def test_another_version_of_the_toolkit(want: str, differs: bool) -> None:
    found = host_drift.compare(info(), CONFIG, manages=(True, True), versions=("26.1", want))
    assert [(one.item, one.want, one.have) for one in found] == [
        ("NVIDIA Container Toolkit version", want, "1.18.1")
    ] * differs


@pytest.mark.parametrize(
    ("engine", "code"),
    [
        ({}, None),
        ({"there": False, "answers": False}, None),  # that is a difference: a run installs it
        ({"answers": False, "error": "no socket"}, "container_engine_down"),
    ],
)
def test_an_engine_that_stands_still_is_no_difference(engine: dict[str, Any], code: Any) -> None:
    down = host_drift.engine_down(info(engine), "h")
    assert (down.code if down else None) == code
    assert host_drift.compare(info(engine), CONFIG, manages=(True, True)) == []


def test_a_driver_that_does_not_answer_is_what_nobody_could_look_at() -> None:
    there = info(nvidia={"trouble": {"code": "gpu_lost"}}, findings=[finding("gpu_lost"), finding("mig", WARNING)])
    assert [one.code for one in host_drift.blind(there)] == ["gpu_lost"]
    assert [one.code for one in host_drift.warnings(there)] == ["mig"]


def cards(*, foreign: int = 0, shares: tuple[Any, ...] = (0.5, 0.4)) -> list[dict[str, Any]]:
    processes = [{"pid": 1, "used_mib": 50000, "name": "VLLM::EngineCore"}]
    if foreign:
        processes.append({"pid": 2, "used_mib": foreign, "name": "python3"})
    card = {"index": 0, "cuda_total_mib": 100000, "free_mib": 1, "processes": processes}
    stacks = [{"name": f"s{n}", "share": share, "kv_cache": None, "gpus": [0]} for n, share in enumerate(shares)]
    return host_drift.cards(info(nvidia={"cards": [card]}), {"1": {"stack": "s0"}}, stacks, {0: "tests"})


def test_whose_memory_it_is() -> None:
    (card,) = cards(foreign=700)
    assert [(one["stack"], one["mib"]) for one in card["stacks"]] == [("s0", 50000), ("s1", 0)]
    assert card["foreign"] == [{"pid": 2, "name": "python3", "mib": 700}]
    assert card["keep_free"] == "tests"


@pytest.mark.parametrize(
    ("foreign", "shares", "hazard"),
    [
        (0, (0.5, 0.5), False),  # nobody else is there: the plan has judged the shares
        (10000, (0.5, 0.4), False),
        (10001, (0.5, 0.4), True),
        (9000, (None,), True),  # vLLM's own default of 0.92
        (99000, (), False),  # no stack of ours is on it
    ],
)
def test_a_restart_that_would_not_fit_is_a_warning(foreign: int, shares: tuple[Any, ...], hazard: bool) -> None:
    found = host_drift.hazards(cards(foreign=foreign, shares=shares), "h")
    assert [(one.code, one.severity) for one in found] == [("restart_would_not_fit", WARNING)] * hazard
    assert all("python3 (pid 2)" in one.problem for one in found)
