# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hand-made deployments become inventory: a table of Compose files, and the way there and back for our own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import (
    adopt_gateway,
    adopt_view,
    adoption,
    compose,
    compose_reader,
    gateway_files,
    inventory,
    plan,
    routes,
    yaml_text,
)
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.compose import StackSettings
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.model import Fleet, Image
from ansible_collections.modelfleet.inference.plugins.plugin_utils import yaml_source

from tests.unit.fleet import compose_cases, deployments

LAB = Path(__file__).resolve().parents[3] / "inventories" / "lab"
UUIDS = ("GPU-5f2c1c3e-0001-4c8e-9d2a-000000000001", "GPU-5f2c1c3e-0001-4c8e-9d2a-000000000002")


@pytest.mark.parametrize("case", compose_cases.CASES)
def test_a_compose_file_becomes_this_inventory_and_the_rest_is_named(case: str) -> None:
    expected = yaml.safe_load((compose_cases.FOLDER / case / "expected.yaml").read_text(encoding="utf-8"))
    done = compose_cases.adopted(case)
    shown = {name: value for name, value in done.variables.items() if adopt_view.said(done, name)}
    assert shown == expected["inventory"]
    assert [f"{one.place} {one.code}: {one.problem}" for one in done.findings] == expected["findings"]
    assert sorted(done.secrets) == expected["secrets"]


def test_the_table_is_long_enough() -> None:
    assert len(compose_cases.CASES) >= 25


@pytest.mark.parametrize("case", compose_cases.CASES)
def test_what_can_be_pasted_is_yaml_that_reads_back_and_holds_no_secret(case: str) -> None:
    done = compose_cases.adopted(case)
    text = adopt_view.inventory(done, "compose.yaml")
    assert yaml.safe_load(text) == {
        name: done.variables[name] for name in adopt_view.ORDER if adopt_view.said(done, name)
    }
    everything = text + "\n".join(adopt_view.notes(done)) + repr(done.findings)
    for secret in done.values_to_hide:
        assert not secret or secret not in everything
    # Whatever the fixtures call a secret says so itself.
    assert "notareal" not in everything


@pytest.mark.parametrize("case", compose_cases.CASES)
def test_the_inventory_has_its_shape_or_says_what_is_missing(case: str) -> None:
    """Every refusal is one that was announced: something to decide."""
    done = compose_cases.adopted(case)
    variables = {name: value for name, value in done.filled().items() if name.startswith("fleet_")}
    hosts = ["ana-ml2"] if variables.get("fleet_stacks") else []
    gateways = ["ana-ml2"] if "fleet_gateway" in variables else []
    try:
        inventory.parse({"ana-ml2": variables}, gpu_hosts=hosts, gateways=gateways)
    except inventory.FleetError as error:
        words = " ".join(f"{one.problem} {one.remedy}" for one in done.findings if one.code == "to_decide")
        for finding in error.findings:
            announced = f"{finding.place.rpartition('.')[2]}:"
            assert ("no name for a model" if finding.code == "bad_name" else announced) in words, finding


def ours(fleet: Fleet, settings: dict[str, StackSettings], host: str) -> list[Any]:
    """(what the host has, what is rendered again from what was adopted) for each stack of the host."""
    its = settings[host]
    rendered = [compose.render(stack, its, fleet.hosts[host]) for stack in fleet.hosts[host].stacks]
    candidates = []
    for stack in rendered:
        files = {f"{stack.directory}/{name}": file.content for name, file in stack.files.items()}
        source = yaml_source.for_compose(files[f"{stack.directory}/compose.yaml"], "compose.yaml")
        project = compose_reader.read(source, stack.directory, files.get)
        candidate = adoption.of_service(project.services[0], project)
        config = yaml_source.for_python(files[adoption.config_path(candidate.definition)], "vllm.yaml").data
        image = fleet.hosts[host].stacks[stack.position].image
        candidates.append(adoption.replace(candidate, config=config, engine=image.engine, tag=image.tag))
    cards = [adoption.Card(gpu.index, gpu.uuid, gpu.memory or 0) for gpu in fleet.hosts[host].gpus]
    done = adoption.adopt(candidates, host=host, settings=its, cards=cards)
    assert not [one for one in done.findings if one.code == "not_expressed"]
    again = inventory.parse(
        {host: {name: value for name, value in done.filled().items() if name.startswith("fleet_")}},
        gpu_hosts=[host],
        gateways=[],
    )
    assert not plan.make(again, defaults=plan.PlanDefaults(settings=its)).refused
    its = adoption.replace(its, gpu_mode=done.variables.get("vllm_stack_gpu_mode", its.gpu_mode))
    return [
        (before, compose.render(stack, its, again.hosts[host]), fleet.hosts[host].stacks[before.position], stack)
        for before, stack in zip(rendered, again.hosts[host].stacks)
    ]


def lab() -> tuple[Fleet, dict[str, StackSettings]]:
    def read(path: str) -> Any:
        return yaml.safe_load((LAB / path).read_text(encoding="utf-8"))

    images = {
        name: {
            "repository": f"registry:5000/{name}",
            "digest": deployments.DIGEST,
            "engine": image.get("engine", "0.0"),
        }
        for name, image in read("group_vars/all/fleet_images.yml")["fleet_images"].items()
    }
    raw = {"fleet_images": images, **read("group_vars/all/fleet_models.yml"), **read("host_vars/ana-ml2/fleet.yml")}
    return inventory.parse({"ana-ml2": raw}, gpu_hosts=["ana-ml2"], gateways=[]), {"ana-ml2": StackSettings()}


MODES = ("nvidia", "runtime", "cdi")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("which", "host"), [("production", "ana-ml2"), ("production", "ana-blackwell"), ("lab", "ana-ml2")]
)
def test_what_was_rendered_is_adopted_as_it_was(which: str, host: str, mode: str) -> None:
    fleet, settings = deployments.production() if which == "production" else lab()
    settings[host] = adoption.replace(settings[host], gpu_mode=mode)
    found = ours(fleet, settings, host)
    assert len(found) == len(fleet.hosts[host].stacks) > 0
    for before, after, was, is_now in found:
        # The hash covers the service, the options and the secrets: the same one restarts nothing.
        assert after.hash == before.hash, yaml_text.dump(
            {"was": before.service_definition, "is": after.service_definition}
        )
        assert after.files == before.files
        for key in ("name", "gpus", "port", "container", "gpu_memory_utilization", "kv_cache", "listen", "secrets"):
            assert getattr(is_now, key) == getattr(was, key), key
        assert is_now.model.name == was.model.name
        assert is_now.model.source == was.model.source
        assert {**was.args, "tensor_parallel_size": 1} == {**is_now.args, "tensor_parallel_size": 1}


def test_secrets_and_a_changed_host_come_back_too() -> None:
    fleet, settings = deployments.production()
    host = fleet.hosts["ana-ml2"]
    stack = adoption.replace(
        host.stacks[0],
        secrets={"LOGIN": "plain-looking", "OTHER_TOKEN": "pa$$'word"},
        api_key="sk-0123456789",
        kv_cache=1_000_000_007,
        listen="127.0.0.1",
        gpu_memory_utilization=None,
        gpus=(1,),
    )
    gpus = tuple(adoption.replace(gpu, uuid=UUIDS[gpu.index]) for gpu in host.gpus)
    fleet = Fleet({"ana-ml2": adoption.replace(host, gpus=gpus, stacks=(stack,))}, fleet.images, fleet.models)
    [(before, after, _was, is_now)] = ours(fleet, settings, "ana-ml2")
    assert after.hash == before.hash
    assert is_now.secrets == stack.secrets
    assert is_now.api_key == stack.api_key


@pytest.mark.parametrize("instances", [1, 2])
def test_our_gateway_is_adopted_as_it_was(instances: int) -> None:
    fleet, _settings = deployments.production()
    balancer = Image("haproxy", "haproxy", deployments.DIGEST) if instances > 1 else None
    gateway = adoption.replace(
        fleet.gateways["ana-docker"],
        balancer=balancer,
        fallbacks={"qwen3.5-9b-fp8": ("Qwen3-VL",)},
        database_url="postgresql://litellm:pass$word@db/litellm",
        timeout=300,
        stream_timeout=20,
        listen="10.0.0.5",
        settings={"num_retries": 5},
        compose={"environment": {"SET_VERBOSE": "True"}, "mem_limit": "4g"},
    )
    settings = gateway_files.GatewaySettings(instances=instances)
    before = gateway_files.render(routes.make(fleet, gateway), settings, "")
    files = {f"{before.directory}/{name}": file.content for name, file in before.files.items()}
    source = yaml_source.for_compose(files[f"{before.directory}/compose.yaml"], "compose.yaml")
    project = compose_reader.read(source, before.directory, files.get)
    candidates = [adoption.of_service(service, project) for service in project.services]
    path = f"{before.directory}/config/config.yaml"
    done = adoption.adopt(candidates, host="ana-docker", settings=StackSettings())
    _main, its = adopt_gateway.adopt(
        candidates,
        {path: yaml_source.for_python(files[path], "config.yaml")},
        done,
        hosts=list(fleet.hosts),
        settings=gateway_files.GatewaySettings(),
    )
    assert not [one for one in done.findings if one.code in ("not_expressed", "replaced")]
    assert its == settings
    filled = {name: value for name, value in done.filled().items() if name in ("fleet_images", "fleet_gateway")}
    again = inventory.parse({"ana-docker": filled}, gpu_hosts=[], gateways=["ana-docker"]).gateways["ana-docker"]
    after = gateway_files.render(routes.make(fleet, again), its, "")
    assert (after.hash, after.front_hash, after.config_mark) == (before.hash, before.front_hash, before.config_mark)
    assert after.files == before.files
