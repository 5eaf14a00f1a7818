# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which routes the gateways must not use, because what is behind them is being replaced.

Hosts are rolled out side by side, each by a process of its own, and a gateway's configuration names all blocked routes
at once. So what is away stands in a file that all processes of one ansible-playbook share.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Callable

from ansible import constants as C

from ..module_utils.fleet import inventory, routes
from . import hostvars

REPLACED, ABSENT = "being replaced", "not there yet"
BLOCK, WAIT, LEAVE = "block", "wait", "leave"


class Handover:
    """The stacks of ``host`` as the gateways see them. ``apply`` sets a gateway's blocked routes; False: it failed."""

    def __init__(
        self, host: str, gpu_hosts: Sequence[str], gateways: Sequence[str], task_vars: Any, apply: Callable[..., bool]
    ) -> None:
        raw = hostvars.collect(task_vars["hostvars"], [*gpu_hosts, *gateways])
        fleet = inventory.parse(raw, gpu_hosts=list(gpu_hosts), gateways=list(gateways))
        self.host = host
        self.plans = {name: routes.make(fleet, gateway) for name, gateway in fleet.gateways.items()}
        self.apply = apply
        # Made by ansible-playbook itself at its start, inherited by its workers, removed at its end.
        self.state = Path(C.DEFAULT_LOCAL_TMP) / "modelfleet-away.json"

    def routed(self, stacks: Sequence[str]) -> list[str]:
        """Of these stacks of the host those that a gateway balances."""
        ids = {each for plan in self.plans.values() for each in plan.ids}
        return [stack for stack in stacks if self._id(stack) in ids]

    def absent(self, stacks: Sequence[str]) -> None:
        """They do not run yet, so they stand in for nobody; the next change of a gateway leaves them out."""
        with self._away() as away:
            away.update({self._id(stack): ABSENT for stack in stacks})

    def decide(self, stack: str) -> tuple[str, str]:
        """Whether the gateways can do without this stack now, and a text for a person where they cannot.

        BLOCK: it counts as away from here on. WAIT: a replica that is being replaced must come back first.
        LEAVE: nobody can answer in its place, so blocking it would only make the time longer.
        """
        route = self._id(stack)
        with self._away() as away:
            text = ""
            for plan in self.plans.values():
                model = next((each.model_name for each in plan.deployments if each.id == route), "")
                if not model or routes.unblocked_replicas(plan, {*away, route})[model]:
                    continue
                replicas = [each.id for each in plan.replicas(model)]
                if any(away.get(each) == REPLACED for each in replicas if each != route):
                    return WAIT, f"waiting until another replica of {model} is back"
                if not routes.stand_ins(plan, model):
                    return LEAVE, f"[WARNING] {model} has no other replica and no fallback: its requests fail meanwhile"
                text = f"{', '.join(routes.stand_ins(plan, model))} answers for {model} meanwhile"
            away[route] = REPLACED
            return BLOCK, text

    def back(self, stack: str) -> bool:
        """It answers again, or is given up; False where it was not away."""
        with self._away() as away:
            return away.pop(self._id(stack), "") != ""

    def settle(self) -> bool:
        """Let every gateway know what is away now; False where one could not take it."""
        with self._locked("modelfleet-settle.lock"):
            with self._away() as away:
                blocked = dict(away)
            taken = [
                self.apply(name, [route for route in plan.ids if route in blocked]) for name, plan in self.plans.items()
            ]
            return all(taken)

    def _id(self, stack: str) -> str:
        return f"{self.host}--{stack}"

    @contextlib.contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        with open(self.state.with_name(name), "a", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def _away(self) -> Iterator[dict[str, str]]:
        with self._locked("modelfleet-away.lock"):
            away: dict[str, str] = json.loads(self.state.read_text("utf-8")) if self.state.exists() else {}
            before: Mapping[str, str] = dict(away)
            yield away
            if away != before:
                fresh = self.state.with_suffix(".new")
                fresh.write_text(json.dumps(away), "utf-8")
                os.replace(fresh, self.state)
