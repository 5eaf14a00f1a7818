# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wait for model servers, many at once, each until its outcome is known."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Callable, Optional, Sequence

from ..fleet.readiness import WAITING, Observation, State, models_of, observe
from .http import Fetch

HTTP_TIMEOUT_SECONDS = 5.0

# (container's inspect result or None, new log lines since the given moment with their times)
Look = Callable[[str, float], tuple[Optional[dict[str, Any]], list[tuple[float, str]]]]


@dataclass(frozen=True)
class Endpoint:
    """One server to wait for; the names are those ``readiness`` asks of what is wanted."""

    url: str
    served_model_name: str
    root: str = ""
    container: str = ""
    api_key: str = ""
    timeout_s: float = 1800.0
    allowed_restarts: int = 0


@dataclass(frozen=True)
class Waited:
    """How the wait for one endpoint ended, and which models it listed at last."""

    state: State
    models: tuple[str, ...]


def wait(
    endpoints: Sequence[Endpoint],
    *,
    fetch: Fetch,
    look: Look,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
    interval: float = 1.0,
    once: bool = False,
) -> list[Waited]:
    """The outcomes in the order of ``endpoints``. ``interval``: seconds between two looks. ``once``: do not wait."""

    def one(endpoint: Endpoint) -> Waited:
        return _wait_for(endpoint, fetch, look, clock, sleep, interval, once)

    with ThreadPoolExecutor(max_workers=max(1, len(endpoints))) as pool:
        return list(pool.map(one, endpoints))


def _wait_for(
    endpoint: Endpoint,
    fetch: Fetch,
    look: Look,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
    interval: float,
    once: bool,
) -> Waited:
    began, state, read_until = clock(), State(), 0.0
    models: tuple[str, ...] = ()
    headers = {"Authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}
    base = endpoint.url.rstrip("/")
    while True:
        # Docker first: an answer from the port of a container that has ended before is somebody else's.
        container, lines = look(endpoint.container, read_until) if endpoint.container else (None, [])
        read_until = lines[-1][0] if lines else read_until
        docker = (container or {}).get("State") or {}
        health = fetch("GET", f"{base}/health", timeout=HTTP_TIMEOUT_SECONDS)
        listed = fetch("GET", f"{base}/v1/models", headers=headers, timeout=HTTP_TIMEOUT_SECONDS)
        found = tuple(models_of(listed.json())) if listed.status == 200 else ()
        models = tuple(str(model.get("id", "")) for model in found) or models
        state = observe(
            state,
            Observation(
                elapsed=clock() - began,
                status=docker.get("Status", "missing") if endpoint.container else "",
                exit_code=docker.get("ExitCode"),
                oom_killed=bool(docker.get("OOMKilled")),
                restart_count=(container or {}).get("RestartCount") or 0,
                started_at=docker.get("StartedAt", ""),
                health=(docker.get("Health") or {}).get("Status", ""),
                lines=tuple(text for _moment, text in lines),
                http_health=health.status,
                http_models=listed.status,
                models=found,
            ),
            endpoint,
        )
        if state.verdict != WAITING or once:
            return Waited(state, models)
        sleep(interval)
