# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The wait ends when the outcome is known: tables of observations, the clock being one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import readiness
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.readiness import (
    FAILED,
    READY,
    WAITING,
    Observation,
    State,
    Wanted,
    observe,
)

LOGS = Path(__file__).parents[2] / "fixtures" / "vllm" / "logs"
WANTED = Wanted(served_model_name="tiny", root="/models/tiny", timeout_s=600)
OURS = {"id": "tiny", "root": "/models/tiny", "max_model_len": 2048}
SERVES = {"http_health": 200, "http_models": 200, "models": (OURS,)}


def look(elapsed: float, **seen: Any) -> Observation:
    return Observation(elapsed=elapsed, **{"status": "running", **seen})


def after(*observations: Observation, wanted: Optional[Wanted] = None) -> State:
    state = State()
    for observation in observations:
        state = observe(state, observation, wanted or WANTED)
    return state


def test_a_start_says_its_phases_and_ends_ready() -> None:
    state, said = State(), []
    lines = (LOGS / "start_qwen3_vl.txt").read_text(encoding="utf-8").splitlines()[:80]
    for second, line in enumerate(lines):
        state = observe(state, look(second, lines=(line,)), WANTED)
        said += state.events
    state = observe(state, look(93, **SERVES), WANTED)
    said += state.events
    assert said == [
        "resolving the model",
        "loading weights",
        "loading weights 1/1 (100 %)",
        "laying out the KV cache",
        "serving",
        "ready after 93 s",
    ]
    assert (state.verdict, state.max_model_len) == (READY, 2048)


KV = "ValueError: No available memory for the cache blocks."
WARNED = f"WARNING 11-30 20:20:28 [a.py:1] {KV}"
UNHEALTHY = {"health": "unhealthy"}


@pytest.mark.parametrize(
    ("code", "observations"),
    [
        ("unknown_failure", [look(1), look(2, status="exited", exit_code=1)]),
        ("unknown_failure", [look(1), look(2, status="exited", exit_code=0)]),
        ("unknown_failure", [look(1), look(2, status="dead", exit_code=255)]),
        ("kv_cache_no_memory", [look(1, lines=(KV,))]),
        ("kv_cache_no_memory", [look(1, lines=(WARNED,)), look(2, status="exited", exit_code=1)]),
        ("container_oom_killed", [look(1), look(2, status="exited", exit_code=137, oom_killed=True)]),
        ("container_oom_killed", [look(1), look(2, oom_killed=True)]),
        ("restart_loop", [look(1), look(2, status="restarting", exit_code=1)]),
        ("restart_loop", [look(1), look(2, restart_count=1)]),
        ("container_missing", [look(1), look(2, status="missing")]),
        ("port_answered_by_other", [look(1, status="created", **SERVES)]),
        ("port_answered_by_other", [look(1), look(2, status="exited", exit_code=1, **SERVES)]),
        ("engine_dead", [look(1), look(2, http_health=503), look(3, http_health=503)]),
        ("engine_dead", [look(1), look(2, http_health=500), look(3, http_health=500)]),
        ("served_name_mismatch", [look(1, http_health=200, http_models=200, models=({"id": "other"},))]),
        ("model_root_mismatch", [look(1, http_health=200, http_models=200, models=({**OURS, "root": "/models/x"},))]),
        ("api_key_rejected", [look(1, http_health=200, http_models=401)]),
        ("models_not_listed", [look(1, http_health=200), look(40, http_health=200)]),
        ("container_unhealthy", [look(1, lines=("Application startup complete.",)), look(2, **UNHEALTHY)]),
        ("container_unhealthy", [look(1, lines=("Loading model from scratch",)), look(62, **UNHEALTHY)]),
        ("deadline", [look(1), look(600)]),
        ("hub_offline_not_cached", [look(1, lines=("LocalEntryNotFoundError: no",)), look(600)]),
    ],
)
def test_a_failure_ends_the_wait_with_its_code(code: str, observations: list[Observation]) -> None:
    *before, deciding = observations
    assert after(*before).verdict == WAITING if before else True
    state = observe(after(*before), deciding, WANTED)
    assert (state.verdict, state.code) == (FAILED, code)
    assert all((state.reason, state.cause, state.remedy))
    assert state.events[-1].startswith("failed after ")


@pytest.mark.parametrize(
    "observations",
    [
        [look(1, http_health=503), look(2), look(3, http_health=503)],
        [look(1, http_health=200, http_models=0)],
        [look(1, http_health=200, http_models=503)],
        [look(1, lines=("Loading model from scratch",)), look(50, **UNHEALTHY)],
        [look(1, restart_count=7), look(2, restart_count=7)],
        [look(0, status="missing")],
        [look(1, status="created")],
        [look(1, lines=("WARNING 11-30 20:20:28 [a.py:1] CUDA out of memory, retrying",))],
        [look(599)],
    ],
)
def test_what_may_still_become_ready_is_waited_for(observations: list[Observation]) -> None:
    assert after(*observations).verdict == WAITING


def test_an_unhealthy_container_that_answers_is_ready() -> None:
    assert after(look(1, **UNHEALTHY, **SERVES)).verdict == READY


def test_any_root_is_right_where_none_is_wanted_or_the_server_tells_none() -> None:
    assert after(look(1, **SERVES), wanted=Wanted("tiny")).verdict == READY
    assert after(look(1, http_health=200, http_models=200, models=({"id": "tiny"},))).verdict == READY


def test_restarts_that_are_allowed_are_waited_for() -> None:
    wanted = Wanted("tiny", allowed_restarts=2)
    looks = [look(n, restart_count=n) for n in range(4)]
    assert after(*looks[:3], wanted=wanted).verdict == WAITING
    assert after(*looks, wanted=wanted).code == "restart_loop"


@pytest.mark.parametrize(
    ("allowed", "looks", "verdict"),
    [
        (1, [look(1, lines=("RuntimeError: CUDA error",)), look(2, restart_count=1), look(3, **SERVES)], READY),
        (1, [look(1), look(2, status="restarting", restart_count=1)], WAITING),
        (1, [look(1), look(2, status="restarting", restart_count=2)], "failed"),
        (1, [look(1), look(2, status="exited", exit_code=1)], "failed"),
        (0, [look(1), look(2, status="restarting", restart_count=0)], "failed"),
        (0, [look(1, restart_count=7), look(2, restart_count=7, **SERVES)], READY),
    ],
)
def test_a_death_within_what_is_allowed_is_none(allowed: int, looks: list[Any], verdict: str) -> None:
    assert after(*looks, wanted=Wanted("tiny", allowed_restarts=allowed)).verdict == verdict


def test_a_loop_is_explained_by_the_first_attempt() -> None:
    start = "INFO 11-30 20:20:28 [utils.py:1] non-default args: {'port': 8000}"
    oom = "torch.OutOfMemoryError: CUDA out of memory."
    state = after(look(1, lines=(start, oom)), look(2, lines=(start,), restart_count=1))
    assert state.code == "cuda_out_of_memory"
    assert "again 1 time" in state.reason
    assert state.lines == (oom,)


def test_a_final_state_stays() -> None:
    ready = after(look(1, **SERVES))
    later = observe(ready, look(2, status="exited", exit_code=1), WANTED)
    assert (later.verdict, later.events) == (READY, ())


@pytest.mark.parametrize("log", sorted(LOGS.glob("fail_*.txt")), ids=lambda path: path.stem)
def test_a_real_failure_ends_the_wait_at_its_line_or_with_its_process(log: Path) -> None:
    state = State()
    lines = log.read_text(encoding="utf-8").splitlines()
    for second, line in enumerate(lines):
        state = observe(state, look(second / 10, lines=(line,)), WANTED)
    if state.verdict == WAITING:
        oom = "oom" in log.stem
        state = observe(state, look(99, status="exited", exit_code=137 if oom else 0, oom_killed=oom), WANTED)
    assert state.verdict == FAILED
    assert state.code != "unknown_failure"
    assert state.lines


def test_the_log_that_is_kept_has_its_beginning_and_its_end() -> None:
    state = State()
    for start in range(0, 10_000, 100):
        lines = tuple(str(number) for number in range(start, start + 100))
        state = observe(state, look(1, lines=lines), WANTED)
    assert (state.log[0], state.log[-1], state.log_end[-1]) == ("0", "1999", "9999")
    assert len(state.log_end) == readiness.KEPT_LAST


@pytest.mark.parametrize(("gib", "seconds"), [(0, 900), (50, 1924), (-1, 900)])
def test_the_time_limit_grows_with_the_checkpoint(gib: int, seconds: int) -> None:
    assert readiness.deadline_seconds(gib * 1024**3, 900) == seconds


@pytest.mark.parametrize("body", [None, [], {"data": None}, {"data": [1]}, "x"])
def test_a_body_that_is_no_list_of_models_has_none(body: Any) -> None:
    assert list(readiness.models_of(body)) == []
