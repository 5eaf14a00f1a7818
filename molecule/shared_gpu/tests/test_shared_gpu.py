# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Engines of one card never load together, whatever starts them; one story from the first start to the removal.

When an engine started and when it was ready is what Docker wrote down, not what we say.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from dataclasses import dataclass
from typing import Callable

import pytest

LAB = os.environ.get("LAB_NAME", "modelfleet")
ROOT = "/opt/docker/compose"
CARD_1 = ("vllm-granite-summarizer", "vllm-embedder", "vllm-reranker", "vllm-reward", "vllm-qwen35")
CARD_0 = ("vllm-summarizer-too", "vllm-reranker-too")
ALL = (*CARD_1, *CARD_0)
LOOK = r"""
for name in %s; do
  set -- $(docker inspect -f '{{.Id}} {{.State.StartedAt}} {{.State.Status}}' $name 2>/dev/null)
  [ -n "$1" ] || continue
  docker logs -t --since $2 $name > /tmp/look 2>&1
  ready=$(grep -m1 'Application startup complete' /tmp/look | cut -d' ' -f1)
  kv=$(sed -n 's/.*GPU KV cache size: \([0-9,]*\) tokens.*/\1/p' /tmp/look | tr -d , | tail -1)
  echo $name $1 $2 $3 ${ready:--} ${kv:-0}
done
"""


@dataclass(frozen=True)
class Container:
    identity: str
    started: str  # RFC 3339, UTC: comparable as text
    status: str
    ready: str  # "-": not yet
    kv_tokens: int


@pytest.fixture(scope="module")
def host_now(host) -> Callable[[], dict[str, Container]]:
    def look() -> dict[str, Container]:
        lines = host.check_output(LOOK % " ".join(ALL)).splitlines()
        return {name: Container(*words, int(kv)) for name, *words, kv in (line.split() for line in lines)}

    return look


@pytest.fixture
def site(playbook) -> Callable[..., str]:
    """site.yml for the stacks; must succeed. Its output."""

    def run(*arguments: str, **variables: object) -> str:
        inventory = () if "lab" in arguments else ("-i", "molecule/shared_gpu/hosts.yml")
        more = [argument for argument in arguments if argument != "lab"]
        change = json.dumps({"round": 2, **variables})  # from the first change on
        done = playbook("site.yml", *inventory, "-l", "ana-ml2", "-t", "vllm_stack", *more, "-e", change)
        assert done.status == 0, done.output
        return done.output

    return run


def changed(output: str) -> bool:
    return "changed=0" not in output


def wait(seconds: float, condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"after {seconds} s not: {what}"
        time.sleep(1)


def unit(host, stack: str, name: str) -> str:
    return host.run(f"systemctl show -P {name} modelfleet-{stack}").stdout.strip()


def health(host, container: str) -> str:
    return host.check_output(f"docker inspect -f '{{{{.State.Health.Status}}}}' {container}")


def in_order(seen: dict[str, Container], *chains: tuple[str, ...]) -> None:
    for chain in chains:
        for before, after in zip(chain, chain[1:]):
            assert seen[before].ready != "-", before
            assert seen[before].ready < seen[after].started, f"{after} started before {before} was ready: {seen}"


def side_by_side(seen: dict[str, Container]) -> None:
    first = {card[0]: seen[card[0]] for card in (CARD_0, CARD_1)}
    assert max(one.started for one in first.values()) < min(seen[card[-1]].ready for card in (CARD_0, CARD_1)), seen


def all_ready(host_now, names=ALL) -> Callable[[], bool]:
    def ready() -> bool:
        try:
            seen = host_now()
        except (AssertionError, RuntimeError):  # the host or its daemon is not back yet
            return False
        return all(name in seen and seen[name].status == "running" and seen[name].ready != "-" for name in names)

    return ready


@pytest.fixture(scope="module")
def good(host_now) -> dict[str, int]:
    """The KV cache that each engine got in the run."""
    return {name: one.kv_tokens for name, one in host_now().items()}


def whole(seen: dict[str, Container], good: dict[str, int]) -> None:
    assert {name: one.kv_tokens for name, one in seen.items()} == {name: good[name] for name in seen}


def test_a_run_starts_the_engines_of_a_card_one_after_another_and_cards_side_by_side(host_now, good):
    seen = host_now()
    assert set(seen) == set(ALL)
    in_order(seen, CARD_1, CARD_0)
    side_by_side(seen)
    assert all(good.values())


def test_each_has_its_unit_and_docker_starts_nothing_by_itself(host):
    for stack in (name.removeprefix("vllm-").replace("qwen35", "qwen35-vl") for name in ALL):
        assert unit(host, stack, "ActiveState") == "active", stack
        assert unit(host, stack, "UnitFileState") == "enabled", stack
    policies = host.check_output(f"docker inspect -f '{{{{.HostConfig.RestartPolicy.Name}}}}' {' '.join(ALL)}")
    assert set(policies.split()) == {"no"}


def test_one_changed_stack_of_five_restarts_alone(site, host_now):
    before = host_now()
    assert changed(site("--check"))
    assert host_now() == before
    assert changed(site())
    after = host_now()
    assert after.pop("vllm-reward").identity != before.pop("vllm-reward").identity
    assert after == before


def test_two_that_load_together_measure_each_other_and_the_next_run_heals_it(host, site, host_now, good):
    pair = ("vllm-granite-summarizer", "vllm-qwen35")
    host.check_output("systemctl stop modelfleet-granite-summarizer modelfleet-qwen35-vl")
    host.check_output(f"docker start {pair[0]} & docker start {pair[1]} & wait")
    wait(60, lambda: all(host_now()[name].ready != "-" or host_now()[name].status == "exited" for name in pair), "up")
    seen = host_now()
    # One died or got a fraction; what the other got beyond its share came from the one that died.
    hit = [name for name in pair if seen[name].status == "exited" or seen[name].kv_tokens != good[name]]
    assert hit, f"the lab's race did not show: {seen}, {good}"
    foreseen = site("--check", "--diff")
    assert "started by hand" in foreseen or "exited" in foreseen
    site()
    whole(host_now(), good)


def test_a_reboot_keeps_the_order(host, host_now, good):
    before = host_now()
    subprocess.run(["docker", "restart", "-t", "30", f"{LAB}-ana-ml2"], check=True, capture_output=True)
    wait(240, all_ready(host_now), "all stacks ready after the reboot")
    after = host_now()
    assert all(after[name].started > before[name].started for name in ALL)
    in_order(after, CARD_1, CARD_0)
    side_by_side(after)
    whole(after, good)


def test_what_is_stopped_by_hand_stays_down_over_a_restart_of_the_daemon_and_the_others_keep_their_order(
    host, host_now, good
):
    host.check_output(f"cd {ROOT}/reranker && docker compose stop 2>&1")
    wait(60, lambda: unit(host, "reranker", "ActiveState") == "inactive", "the unit noticed")
    before = host_now()
    host.check_output("systemctl restart docker")
    others = tuple(name for name in ALL if name != "vllm-reranker")
    wait(240, all_ready(host_now, others), "all others ready after the restart of the daemon")
    after = host_now()
    assert all(after[name].started > before[name].started for name in others)
    in_order(after, tuple(name for name in CARD_1 if name != "vllm-reranker"), CARD_0)
    assert after.pop("vllm-reranker") == before["vllm-reranker"]
    whole(after, good)


def test_engines_that_die_come_back_in_their_turn_until_the_fuse_blows(host, host_now, good, site):
    """At once: one is killed, one exits with 0, one dies at every start, one loses its card."""
    # Docker counts no failure of a health check before its first success, and that comes up to 10 s after the engine's.
    wait(60, lambda: health(host, "vllm-reward") == "healthy", "vllm-reward is healthy after the restart of the daemon")
    before = host_now()
    host.check_output("echo crash_at=config > /run/lab-gpu/faults/embedder")
    host.check_output("echo exit0 > /run/lab-gpu/faults/granite-summarizer")
    host.check_output("lab-gpu lose vllm-reward")
    host.check_output("kill -9 $(docker inspect -f '{{.State.Pid}}' vllm-embedder vllm-qwen35)")
    body = json.dumps({"model": "granite-summarizer", "messages": [{"role": "user", "content": "hello"}]})
    ask = f"curl -s -m 20 -H 'Content-Type: application/json' -d '{body}' http://127.0.0.1:8003/v1/chat/completions"
    host.run(ask)
    host.check_output("rm /run/lab-gpu/faults/granite-summarizer")
    died = host.check_output("journalctl -u modelfleet-granite-summarizer --since -1min -o cat; sleep 4")
    assert re.search(r"exited with exit status 0", died + host.check_output(
        "journalctl -u modelfleet-granite-summarizer --since -1min -o cat")), died  # fmt: skip
    wait(120, lambda: unit(host, "embedder", "ExecMainStatus") == "3", "the fuse of the embedder blew")
    back = ("vllm-granite-summarizer", "vllm-qwen35")
    wait(120, lambda: all_ready(host_now, back)() and all(
        host_now()[name].started > before[name].started for name in back), "the other two are back")  # fmt: skip
    whole({name: one for name, one in host_now().items() if name in back}, good)
    assert unit(host, "embedder", "ActiveState") == "failed"
    wait(90, lambda: health(host, "vllm-reward") == "unhealthy", "vllm-reward has lost its card")
    seen = host_now()
    assert seen["vllm-embedder"].status == "exited"

    foreseen = site("--check", "--diff")
    assert "crash fuse has blown, stays down: container vllm-embedder is exited with exit status" in foreseen
    assert "stopped by hand at" in foreseen  # the reranker, since the test before
    assert "Failed to initialize NVML: Unknown Error" in foreseen
    assert host_now() == seen

    host.check_output("rm -f /run/lab-gpu/faults/embedder")
    site()
    healed = host_now()
    whole(healed, good)
    assert healed["vllm-reward"].identity != seen["vllm-reward"].identity
    for name in (*CARD_0, *back):
        assert healed[name] == seen[name]
    in_order(healed, ("vllm-embedder", "vllm-reranker", "vllm-reward"))
    assert not changed(site("--check"))


def test_a_stack_that_moves_to_another_card_leaves_its_old_one_first(site, host, host_now):
    before = host_now()
    output = site(embedder_gpu=0)
    assert "stopping: moves from GPU 1 to GPU 0" in output
    after = host_now()
    assert {name for name in ALL if after[name] != before[name]} == {"vllm-embedder"}
    assert after["vllm-embedder"].status == "running"
    # The order of the others has changed too, and nothing but their units.
    assert "modelfleet-embedder" not in unit(host, "reranker", "After")
    assert "modelfleet-embedder" in unit(host, "reranker-too", "After")


def test_a_stack_that_left_the_inventory_is_reported_and_goes_only_when_asked(site, host, host_now):
    before = host_now()
    site("lab")
    kept = host_now()
    assert all(kept[name] == before[name] for name in CARD_0)
    in_order(kept, CARD_1)
    site("lab", vllm_stack_prune=True)
    assert set(host_now()) == set(CARD_1)
    assert not host.file("/etc/systemd/system/modelfleet-reranker-too.service").exists
    archived = host.check_output(f"ls {ROOT}/.modelfleet/archive")
    assert "summarizer-too-" in archived
    assert "reranker-too-" in archived
    assert not changed(site("lab", "--check"))
