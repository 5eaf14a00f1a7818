# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is it ready, will it ever be? A pure state machine over what somebody else observes.

It ends as soon as the outcome is known: the time limit is the last resort, never the usual way to learn of a failure.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Mapping, Optional, Sequence

from . import engine_log
from .diagnosis import FATAL, Diagnosis, diagnose, first_fatal
from .engine_log import Progress

WAITING = "waiting"
READY = "ready"
FAILED = "failed"

KEPT_FIRST = 2000  # lines of the log that are kept for the diagnosis: the reason stands in the first attempt ...
KEPT_LAST = 2000  # ... or at the end
UNHEALTHY_SILENCE = 60.0  # seconds without a new log line until "unhealthy" is believed while the model loads
EMPTY_LIST_SECONDS = 30.0  # a healthy server that lists no model for so long never will
BAD_ANSWERS = 2  # 500 or 503 in a row; one may be a server that is just going down or coming up

_ENDED = ("exited", "dead", "removing")


@dataclass(frozen=True)
class Observation:
    """One look at one stack. What was not looked at keeps its default.

    ``status`` is Docker's (``created``, ``running``, ``restarting``, ``exited``, ``dead``, ``paused``), ``missing``
    when there is no such container, or empty when Docker was not asked. ``lines`` are those since the last look.
    ``http_health`` and ``http_models`` are the status of GET /health and GET /v1/models (0: no answer); ``models``
    the entries of the latter. ``elapsed`` is in seconds since the start.
    """

    elapsed: float
    status: str = ""
    exit_code: Optional[int] = None
    oom_killed: bool = False
    restart_count: int = 0
    started_at: str = ""
    health: str = ""
    lines: tuple[str, ...] = ()
    http_health: int = 0
    http_models: int = 0
    models: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Wanted:
    """What readiness means for one endpoint; a rendered stack has the same names.

    ``root`` empty: any. ``timeout_s``: seconds, the last resort. ``allowed_restarts``: how often Docker may start the
    container again before that counts as a failure.
    """

    served_model_name: str
    root: str = ""
    timeout_s: float = 1800.0
    allowed_restarts: int = 0


@dataclass(frozen=True)
class State:
    """Where one start is. ``events`` are the new lines for a person, ``lines`` those of the log that show a failure."""

    verdict: str = WAITING
    phase: str = engine_log.STARTING
    progress: Progress = field(default_factory=Progress)
    code: str = ""
    reason: str = ""
    cause: str = ""
    remedy: str = ""
    retryable: bool = False
    lines: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    diagnoses: tuple[Diagnosis, ...] = ()
    seconds: float = 0.0
    max_model_len: Optional[int] = None
    log: tuple[str, ...] = ()
    log_end: tuple[str, ...] = ()
    restarts_before: Optional[int] = None  # Docker's count when the wait began; None: that of the first look
    bad_answers: int = 0
    last_line_at: float = 0.0
    empty_since: Optional[float] = None


def deadline_seconds(checkpoint_bytes: int, base: float, read_rate: int = 50 * 1024 * 1024) -> float:
    """Seconds a start may take at most: ``base`` for compiling and capturing, plus reading the checkpoint.

    ``read_rate`` in bytes per second is a slow disk on purpose: this is the last resort, not an expectation.
    """
    return base + max(0, checkpoint_bytes) / read_rate


def observe(state: State, seen: Observation, wanted: Any) -> State:
    """The state after one more look. ``wanted`` is a Wanted or a rendered stack. Final states stay as they are."""
    if state.verdict != WAITING:
        return replace(state, events=())
    state = _read(state, seen)
    for judge in (_container, _log, _answers, _health, _time):
        state = judge(state, seen, wanted)
        if state.verdict != WAITING:
            return state
    return state


def _read(state: State, seen: Observation) -> State:
    progress, events = state.progress, []
    for line in seen.lines:
        after = engine_log.advance(progress, line)
        if after.phase != progress.phase or _quarter(after) > _quarter(progress):
            events.append(str(after))
        progress = after
    log, log_end = state.log, state.log_end
    if seen.lines:
        room = KEPT_FIRST - len(log)
        log += seen.lines[:room] if room > 0 else ()
        log_end = (log_end + seen.lines[max(0, room) :])[-KEPT_LAST:]
    return replace(
        state,
        progress=progress,
        phase=progress.phase,
        # Several shards may have come in one look: only the newest of a phase is news.
        events=tuple(event for event, after in zip(events, [*events[1:], ""]) if _phase_of(event) != _phase_of(after)),
        log=log,
        log_end=log_end,
        seconds=seen.elapsed,
        last_line_at=seen.elapsed if seen.lines else state.last_line_at,
        restarts_before=seen.restart_count if state.restarts_before is None else state.restarts_before,
    )


def _quarter(progress: Progress) -> int:
    return 4 * progress.done // progress.total if progress.total else 0


def _phase_of(event: str) -> str:
    return next((phase for phase in engine_log.PHASES if event.startswith(phase)), event)


def _container(state: State, seen: Observation, wanted: Any) -> State:
    allowed = getattr(wanted, "allowed_restarts", 0)
    restarts = seen.restart_count - (state.restarts_before or 0)
    if seen.oom_killed:
        return _explained(state, seen, "container_oom_killed", "the kernel killed the container for its memory use")
    if seen.status in _ENDED:
        ended = _explained(state, seen, "container_exited", f"the container ended with exit code {seen.exit_code}")
        return _other_on_port(state, seen) if seen.http_health and ended.code == "unknown_failure" else ended
    # Docker counts a restart before it makes it; one that went on before this wait began is a loop already.
    if restarts > allowed or (seen.status == "restarting" and not allowed):
        times = f"{restarts} time{'s' if restarts != 1 else ''}" if restarts else "after its end"
        return _explained(state, seen, "restart_loop", f"Docker started the container again {times}", restarts)
    if seen.status == "missing" and seen.elapsed > 0:
        return _failed(
            state,
            "container_missing",
            "there is no such container",
            "It was removed, or never created.",
            "Run docker compose up -d in the stack's folder and read what it says.",
        )
    if seen.status == "created" and seen.http_health:
        return _other_on_port(state, seen)
    return state


def _other_on_port(state: State, seen: Observation) -> State:
    return _failed(
        state,
        "port_answered_by_other",
        f"the port answers (GET /health: {seen.http_health}), but the stack's container is {seen.status}",
        "Another process or container has the port.",
        "See who it is ('ss -ltnp', 'docker ps'), then stop it or give this stack another port.",
    )


def _log(state: State, seen: Observation, wanted: Any) -> State:
    if getattr(wanted, "allowed_restarts", 0) > 0:
        return state  # its end may be forgiven, and is seen; these lines may be those of the attempt before
    for line in seen.lines:
        if first_fatal(line) is not None:
            return _explained(state, seen, "unknown_failure", "the engine wrote a line that ends its start")
    return state


def _answers(state: State, seen: Observation, wanted: Any) -> State:
    if seen.http_health in (500, 503):
        if state.bad_answers + 1 < BAD_ANSWERS:
            return replace(state, bad_answers=state.bad_answers + 1)
        return _explained(state, seen, "engine_dead", f"GET /health answers {seen.http_health}: the engine is dead")
    state = replace(state, bad_answers=0)
    if seen.http_health != 200:
        return state
    if seen.http_models in (401, 403):
        return _failed(
            state,
            "api_key_rejected",
            f"GET /v1/models answers {seen.http_models}: the server does not take the key",
            "The key that was sent is not the server's.",
            "Make the api_key of the check and the server's VLLM_API_KEY (or --api-key) the same.",
        )
    if not seen.models:
        since = seen.elapsed if state.empty_since is None else state.empty_since
        if seen.elapsed - since < EMPTY_LIST_SECONDS:
            return replace(state, empty_since=since)
        return _failed(
            state,
            "models_not_listed",
            f"/health is 200, but /v1/models has listed nothing for {EMPTY_LIST_SECONDS:.0f} s",
            "This is not a model server, or its engine does not start.",
            "See which process has the port, and read the container's log.",
        )
    return _model(state, seen, wanted)


def _model(state: State, seen: Observation, wanted: Any) -> State:
    names = [str(model.get("id", "")) for model in seen.models]
    ours = next((model for model in seen.models if model.get("id") == wanted.served_model_name), None)
    if ours is None:
        return _failed(
            state,
            "served_name_mismatch",
            f"/v1/models lists {', '.join(names)}, not {wanted.served_model_name}",
            "The server serves another name, or another server has the port.",
            f"Set served_model_name to {wanted.served_model_name}, or see which container publishes the port.",
        )
    root = ours.get("root")
    if wanted.root and root and root != wanted.root:
        return _failed(
            state,
            "model_root_mismatch",
            f"{wanted.served_model_name} is served from {root}, not from {wanted.root}",
            "The name is right, the model behind it is another one.",
            "See which container publishes the port; recreate the stack when it is its own.",
        )
    length = ours.get("max_model_len")
    return replace(
        state,
        verdict=READY,
        phase=READY,
        events=(*state.events, f"ready after {seen.elapsed:.0f} s"),
        max_model_len=length if isinstance(length, int) else None,
    )


def _health(state: State, seen: Observation, wanted: Any) -> State:
    if seen.health != "unhealthy" or seen.http_health == 200:
        return state
    # Docker's health check knows nothing of loading; a log that still moves proves it wrong.
    if state.phase != engine_log.SERVING and seen.elapsed - state.last_line_at < UNHEALTHY_SILENCE:
        return state
    return _explained(state, seen, "container_unhealthy", f"the container is unhealthy ({state.progress})")


def _time(state: State, seen: Observation, wanted: Any) -> State:
    if seen.elapsed < wanted.timeout_s:
        return state
    return _explained(
        state, seen, "deadline", f"its time limit of {wanted.timeout_s:.0f} s is over (still {state.progress})"
    )


_OWN = {
    "container_exited": (
        "The engine ended without a word about the reason.",
        "Read the container's log; an end with exit code 0 is an engine that died after it had started.",
    ),
    "container_unhealthy": (
        "Docker's health check fails, the log stands still, and the server does not answer.",
        "Read the container's log and its State.Health.Log.",
    ),
    "deadline": (
        "The start took longer than its limit, and the log shows no failure.",
        "Look at the log's last lines; raise the time limit (vllm_stack_timeout) when the disk or the network is just "
        "slow.",
    ),
    "engine_dead": (
        "The engine's process died while the server's process went on.",
        "Read the engine's last error lines, then restart the stack.",
    ),
    "restart_loop": (
        "It ends again and again, and its log does not say why.",
        "Stop it and read the log of the first attempt.",
    ),
    "unknown_failure": ("The engine wrote a fatal line.", "Read the container's log."),
    "container_oom_killed": ("It used more main memory than it may.", "Raise the memory limit."),
}


def _explained(state: State, seen: Observation, code: str, reason: str, restarts: int = 0) -> State:
    """A failure as the log explains it: the diagnosis is the message, ``reason`` only says how it was noticed."""
    ended = seen.status in (*_ENDED, "restarting")
    found = diagnose(
        (*state.log, *state.log_end),
        exit_code=seen.exit_code if ended and code != "engine_dead" else None,
        oom_killed=seen.oom_killed,
        restarts=restarts,
    )
    fatal = [one for one in found if one.severity == FATAL]
    known = [one for one in fatal if one.code != "unknown_failure"] or fatal
    cause, remedy = _OWN[code]
    if not known or (known[0].code == "unknown_failure" and code in ("restart_loop", "engine_dead")):
        failed = _failed(state, code, reason, cause, remedy)
        shown = known[0].lines if known else (*state.log, *state.log_end)[-3:]
        return replace(failed, lines=tuple(shown), diagnoses=tuple(found))
    first = known[0]
    if code == "deadline" and first.code == "unknown_failure":
        first = replace(first, code=code, cause=cause, remedy=remedy)
    failed = _failed(state, first.code, reason, first.cause, first.remedy)
    return replace(failed, lines=first.lines, retryable=first.retryable, diagnoses=tuple(found))


def _failed(state: State, code: str, reason: str, cause: str, remedy: str) -> State:
    return replace(
        state,
        verdict=FAILED,
        code=code,
        reason=reason,
        cause=cause,
        remedy=remedy,
        events=(*state.events, f"failed after {state.seconds:.0f} s: {reason}"),
    )


def models_of(answer: Any) -> Sequence[Mapping[str, Any]]:
    """The entries of a parsed /v1/models body; empty when it is none."""
    entries = answer.get("data") if isinstance(answer, dict) else None
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
