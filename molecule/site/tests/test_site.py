# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A converged ana-ml2: it answers, and nothing that should change nothing changes anything."""

from __future__ import annotations

import json

import pytest

STACKS = {
    "granite-summarizer": (8003, "granite-summarizer"),
    "embedder": (8004, "embedder"),
    "reranker": (8005, "reranker"),
    "reward": (8006, "reward"),
    "qwen35-vl": (8007, "qwen3.5-9b-fp8"),
}


@pytest.mark.parametrize(("port", "model"), STACKS.values(), ids=STACKS)
def test_every_port_serves_its_model(host, port, model):
    assert host.run(f"curl -fsS --max-time 5 http://127.0.0.1:{port}/health").rc == 0
    listed = json.loads(host.check_output(f"curl -fsS --max-time 5 http://127.0.0.1:{port}/v1/models"))
    assert [each["id"] for each in listed["data"]] == [model]


def test_every_model_answers_again(playbook):
    asked = playbook("playbooks/smoke.yml", "-l", "ana-ml2")
    assert asked.status == 0, asked.output
    assert asked.recap("ana-ml2")["changed"] == 0
    for stack in STACKS:
        assert f"{stack}: " in asked.output


def test_the_proof_lies_on_the_host(host):
    receipt = json.loads(host.file("/opt/docker/compose/qwen35-vl/.modelfleet/receipt.json").content_string)
    assert receipt["outcome"] == "good"
    seen = [answer for answer in receipt["answers"] if answer["pictures"]]
    assert seen, "no picture was asked about"
    assert all(answer["passed"] for answer in receipt["answers"])


@pytest.mark.parametrize("arguments", [(), ("--check", "--diff")], ids=["again", "check"])
def test_nothing_changes(playbook, digest, arguments):
    before = digest()
    run = playbook("site.yml", "-l", "ana-ml2", *arguments)
    assert run.status == 0, run.output
    assert run.recap("ana-ml2")["changed"] == 0, run.output
    assert digest() == before


def test_compose_by_hand_recreates_nothing(host):
    for stack in STACKS:
        compose = f"cd /opt/docker/compose/{stack} && docker compose"
        before = host.check_output(
            f"{compose} ps -aq --no-trunc | xargs docker inspect -f '{{{{.Id}}}} {{{{.State.StartedAt}}}}'"
        )
        host.check_output(f"{compose} up -d 2>&1")
        after = host.check_output(
            f"{compose} ps -aq --no-trunc | xargs docker inspect -f '{{{{.Id}}}} {{{{.State.StartedAt}}}}'"
        )
        assert after == before


def test_one_stack_alone(playbook, program):
    run = playbook("site.yml", "-l", "ana-ml2", "-e", "only=qwen35-vl", program=program)
    assert run.status == 0, run.output
    assert run.recap("ana-ml2")["changed"] == 0, run.output


def test_check_mode_foresees_exactly_what_a_run_changes(host, playbook, program, digest):
    """Drift made by hand: seen and not repaired by --check, repaired by the run, then gone."""
    host.check_output("echo '# by hand' >> /opt/docker/compose/qwen35-vl/compose.yaml")
    before = digest()
    foreseen = playbook("site.yml", "-l", "ana-ml2", "--check", "--diff", program=program)
    after = digest()
    repaired = playbook("site.yml", "-l", "ana-ml2", program=program)
    assert foreseen.recap("ana-ml2")["changed"] == 1, foreseen.output
    assert "by hand" in foreseen.output
    assert after == before
    assert repaired.status == 0, repaired.output
    assert repaired.recap("ana-ml2")["changed"] == 1
    assert playbook("site.yml", "-l", "ana-ml2", "--check", program=program).recap("ana-ml2")["changed"] == 0
