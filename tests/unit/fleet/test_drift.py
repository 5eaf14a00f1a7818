# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The comparison over what a real daemon said of a real container, disturbed in one place at a time."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import drift, rollout_report
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.drift import (
    ADOPT,
    ASK,
    CREATE,
    RECREATE,
    START,
    WAIT,
    WRITE,
    Endpoint,
    LiveFile,
    LiveStack,
)
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.receipt import memory_basis
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.rendered import RenderedStack
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.units import LiveUnit

FIXTURES = Path(__file__).parents[2] / "fixtures" / "docker"
CONTAINER = json.loads((FIXTURES / "container.json").read_text())
IMAGE = json.loads((FIXTURES / "image.json").read_text())
STACK = RenderedStack.from_dict(json.loads((FIXTURES / "stack.json").read_text()))
STARTED = drift.started_at(CONTAINER)
assert STARTED is not None
SECRET = "s3cr$t'x-value"


def live(**changes: Any) -> LiveStack:
    """The host as it was when the fixtures were taken: converged."""
    files = {name: LiveFile(file.content, file.mode, STARTED - 60) for name, file in STACK.files.items()}
    model = {"id": STACK.served_model_name, "root": STACK.root, "max_model_len": STACK.max_model_len}
    converged = LiveStack(
        files=files,
        container=CONTAINER,
        image=IMAGE,
        wanted_image=IMAGE,
        endpoint=Endpoint(200, (model,), 200),
        receipt={"hash": STACK.hash, "asked": True},
        now=STARTED + 3600,
    )
    return replace(converged, **changes)


def disturbed(*path: Any, to: Any) -> dict[str, Any]:
    """The container with one value replaced; None removes it."""
    container: dict[str, Any] = copy.deepcopy(CONTAINER)
    *way, last = path
    where: Any = container
    for key in way:
        where = where[key]
    if to is None:
        del where[last]
    else:
        where[last] = to
    return container


def found(stack: RenderedStack, there: LiveStack, **how: Any) -> list[tuple[str, str]]:
    return [(one.item, one.action) for one in drift.compare(stack, there, **how)]


def test_a_converged_stack_has_no_difference() -> None:
    assert found(STACK, live()) == []


ENV = CONTAINER["Config"]["Env"]
OTHER_PORT = {"8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": "8002"}]}
OTHER_GPU = [{"Driver": "nvidia", "Count": 0, "DeviceIDs": ["0"], "Capabilities": [["gpu"]], "Options": None}]
MORE_MOUNTS = [*CONTAINER["Mounts"], {"Type": "bind", "Source": "/tmp", "Destination": "/t", "RW": True}]
WRITABLE = [{**mount, "RW": True} for mount in CONTAINER["Mounts"]]


@pytest.mark.parametrize(
    ("path", "value", "item"),
    [
        (("Name",), "/vllm-renamed", "container.name"),
        (("Config", "Labels", "modelfleet.hash"), "0" * 64, "hash"),
        (("Config", "Labels", "modelfleet.hash"), None, "hash"),
        (("Config", "Labels", "modelfleet.stack"), "other", "label modelfleet.stack"),
        (("Config", "Labels", "added"), "by hand", "label added"),
        (("Config", "Labels", "com.docker.compose.project"), "other", "project"),
        (("Config", "Labels", "com.docker.compose.project"), None, "project"),
        (("Config", "Cmd"), ["--config", "/etc/modelfleet/vllm.yaml", "--max-model-len", "64"], "command"),
        (("Config", "Cmd"), None, "command"),
        (("Config", "Entrypoint"), ["/bin/sh"], "entrypoint"),
        (("Config", "User"), "nobody", "user"),
        (("Config", "Env"), [*ENV, "EXTRA=1"], "environment EXTRA"),
        (("Config", "Env"), [one for one in ENV if not one.startswith("LOAD=")], "environment LOAD"),
        (("Config", "Env"), ["LOAD=9" if one.startswith("LOAD=") else one for one in ENV], "environment LOAD"),
        (("Config", "Env"), ["PATH=/x" if one.startswith("PATH=") else one for one in ENV], "environment PATH"),
        (("Config", "Env"), ["TOKEN_X=y" if one.startswith("TOKEN_X=") else one for one in ENV], "environment TOKEN_X"),
        (("HostConfig", "DeviceRequests"), OTHER_GPU, "devices"),
        (("HostConfig", "DeviceRequests"), [{**OTHER_GPU[0], "Count": -1, "DeviceIDs": None}], "devices"),
        (("HostConfig", "DeviceRequests"), None, "devices"),
        (
            ("HostConfig", "Devices"),
            [{"PathOnHost": "/dev/x", "PathInContainer": "/dev/x", "CgroupPermissions": "rwm"}],
            "devices",
        ),
        (("Mounts",), MORE_MOUNTS, "mounts"),
        (("Mounts",), MORE_MOUNTS[1:-1], "mounts"),
        (("Mounts",), WRITABLE, "mounts"),
        (("HostConfig", "PortBindings"), OTHER_PORT, "ports"),
        (("HostConfig", "PortBindings"), {}, "ports"),
        (("HostConfig", "NetworkMode"), "host", "network"),
        (("NetworkSettings", "Networks"), {}, "network"),
        (("NetworkSettings", "Networks"), {"two_default": {}, "bridge": {}}, "network"),
        (("HostConfig", "IpcMode"), "host", "ipc"),
        (("HostConfig", "ShmSize"), 67108864, "shm_size"),
        (("HostConfig", "RestartPolicy"), {"Name": "no", "MaximumRetryCount": 0}, "restart"),
        (("HostConfig", "RestartPolicy"), {"Name": "on-failure", "MaximumRetryCount": 3}, "restart"),
        (("HostConfig", "Privileged"), True, "privileged"),
        (("HostConfig", "Memory"), 1 << 30, "memory limit"),
        (("HostConfig", "CapAdd"), ["CAP_SYS_ADMIN"], "capabilities"),
        (("HostConfig", "ReadonlyRootfs"), True, "read_only"),
        (("State", "Status"), "restarting", "container.state"),
        (("State", "Status"), "paused", "container.state"),
        (("State", "Status"), "dead", "container.state"),
        (("State", "Health", "Status"), "unhealthy", "container.state"),
    ],
)
def test_a_container_disturbed_by_hand_is_replaced_and_nothing_else_is_named(
    path: tuple[Any, ...], value: Any, item: str
) -> None:
    items = found(STACK, live(container=disturbed(*path, to=value)))
    assert (item, RECREATE) in items
    # On the host's network nothing is published, so that one is two.
    assert {one for one, _action in items} - {"ports" if item == "network" else ""} == {item}


@pytest.mark.parametrize(
    "container",
    [
        disturbed("Config", "Env", to=[*ENV, "HTTP_PROXY=http://p:1", "no_proxy=x"]),  # Compose adds the user's proxies
        disturbed("Config", "Env", to=list(reversed(ENV))),
        disturbed("Config", "Labels", "com.docker.compose.version", to="9.9"),
        disturbed("HostConfig", "PortBindings", to={"8000/tcp": [{"HostIp": "", "HostPort": "8002"}]}),
        disturbed("HostConfig", "IpcMode", to="shareable"),  # the other default of a daemon
        disturbed("Config", "Hostname", to="other"),
        disturbed("State", "Health", to=None),
        disturbed("RestartCount", to=3),
        disturbed("Mounts", to=list(reversed(CONTAINER["Mounts"]))),
    ],
)
def test_what_means_the_same_is_no_difference(container: dict[str, Any]) -> None:
    assert found(STACK, live(container=container)) == []


@pytest.mark.parametrize(
    ("status", "exit_code", "have"),
    [("exited", 0, "exited (0)"), ("exited", 137, "exited (137)"), ("created", 0, "created")],
)
def test_a_container_that_stands_still_is_started(status: str, exit_code: int, have: str) -> None:
    container = disturbed("State", to={"Status": status, "ExitCode": exit_code, "StartedAt": "0001-01-01T00:00:00Z"})
    (difference,) = drift.compare(STACK, live(container=container, endpoint=None, receipt=None))
    assert (difference.item, difference.have, difference.action) == ("container.state", have, START)


UNIT = LiveUnit("[Unit]", True, "enabled", "active", "success")
WITH_UNIT = replace(STACK, unit="[Unit]")
EXITED = disturbed("State", to={"Status": "exited", "ExitCode": 1, "StartedAt": CONTAINER["State"]["StartedAt"]})


@pytest.mark.parametrize(
    ("status", "restarts", "answers", "items"),
    [
        ("restarting", 3, False, [("unit active", ADOPT), ("container.state", RECREATE)]),
        ("running", 3, False, [("unit active", ADOPT), ("container.state", RECREATE)]),
        ("running", 3, True, [("unit active", ASK)]),  # it is back, and Docker has not asked it yet
        ("running", 0, False, [("unit active", ASK), ("health", WAIT)]),  # somebody has started it
    ],
)
def test_a_container_in_a_loop_is_one_between_two_starts_and_right_after_one(
    status: str, restarts: int, answers: bool, items: list[tuple[str, str]]
) -> None:
    container = disturbed("State", to={**CONTAINER["State"], "Status": status, "Health": {"Status": "starting"}})
    container["RestartCount"] = restarts
    silent = {} if answers else {"endpoint": Endpoint(0, error="connection refused")}
    there = live(container=container, unit=replace(UNIT, active="inactive"), now=STARTED + 5, **silent)
    assert found(WITH_UNIT, there) == items


@pytest.mark.parametrize(
    ("unit", "container", "expected"),
    [
        ({}, CONTAINER, []),
        ({"active": "activating"}, CONTAINER, []),  # about to take over what runs
        ({"text": "[Unit]\nAfter=x"}, CONTAINER, [("unit", "differs", ADOPT)]),
        ({"text": "", "enabled": "", "active": ""}, CONTAINER, [("unit", "(none)", ADOPT)]),
        ({"runner_current": False}, CONTAINER, [("unit program", "another", ADOPT)]),
        ({"enabled": "disabled"}, CONTAINER, [("unit enabled", "disabled", ADOPT)]),
        # Nobody knows whether a neighbour was loading when somebody started it: it is asked, and its KV cache compared.
        ({"active": "inactive"}, CONTAINER, [("unit active", "inactive (started by hand)", ASK)]),
        (
            {"active": "inactive", "stopped_by_hand": "noon"},
            EXITED,
            [("unit active", "stopped by hand at noon", ADOPT), ("container.state", "exited (1)", START)],
        ),
        (
            {"active": "failed", "exit_status": 3, "last_failure": "exit status 1 at noon"},
            EXITED,
            [
                ("unit active", "crash fuse has blown, stays down: exit status 1 at noon", ADOPT),
                ("container.state", "exited (1)", START),
            ],
        ),
        (
            {"active": "activating"},
            EXITED,
            [("unit active", "activating", ADOPT), ("container.state", "exited (1)", START)],
        ),
    ],
)  # fmt: skip
def test_the_unit(unit: dict[str, Any], container: dict[str, Any], expected: list[tuple[str, str, str]]) -> None:
    there = live(unit=replace(UNIT, **unit), container=container)
    assert [(one.item, one.have, one.action) for one in drift.compare(WITH_UNIT, there)] == expected


@pytest.mark.parametrize(
    ("active", "container", "tokens", "found"),
    [
        ("inactive", CONTAINER, 121000, [("KV cache", RECREATE), ("unit active", ASK)]),
        ("inactive", CONTAINER, 100000, [("unit active", ASK)]),
        ("inactive", EXITED, None, [("unit active", ADOPT), ("container.state", START)]),
    ],
)
def test_an_engine_that_was_started_by_hand_beside_a_loading_one_starts_again_in_its_turn(
    active: str, container: dict[str, Any], tokens: Optional[int], found: list[tuple[str, str]]
) -> None:
    proof = {
        **live().receipt,
        "image": STACK.image,
        "memory_basis": memory_basis(WITH_UNIT),
        "engine": {"kv_cache_tokens": 100000},
    }
    there = live(unit=replace(UNIT, active=active), container=container, kv_tokens=tokens, receipt=proof)
    assert [(one.item, one.action) for one in drift.compare(WITH_UNIT, there)] == found


def test_a_unit_that_is_not_wanted_any_more_goes_with_its_container() -> None:
    assert found(STACK, live(unit=UNIT)) == [("unit", RECREATE)]


def test_a_container_that_lost_its_gpus_says_so() -> None:
    said = "Failed to initialize NVML: Unknown Error\n"
    health = {"Status": "unhealthy", "Log": [{"ExitCode": 0, "Output": ""}, {"ExitCode": 1, "Output": said}]}
    (difference,) = drift.compare(STACK, live(container=disturbed("State", "Health", to=health)))
    assert (difference.have, difference.action) == (f"unhealthy: {said.strip()}", RECREATE)


INDEX, PLATFORM, CONFIG, OTHER = (f"sha256:{letter * 64}" for letter in "abcd")


@pytest.mark.parametrize(
    ("wanted", "container_image", "live_image", "wanted_image", "same"),
    [
        # The classic store: the container names the config, the image knows the digest it was pulled by.
        (INDEX, CONFIG, {"Id": CONFIG, "RepoDigests": [f"r@{INDEX}"]}, None, True),
        (PLATFORM, CONFIG, {"Id": CONFIG, "RepoDigests": [f"r@{INDEX}", f"r@{PLATFORM}"]}, None, True),
        # Pulled by the index, wanted by the platform digest, and both are on the host as one image.
        (PLATFORM, CONFIG, {"Id": CONFIG, "RepoDigests": [f"r@{INDEX}"]}, {"Id": CONFIG, "RepoDigests": []}, True),
        # The containerd store: the container names the index itself.
        (INDEX, INDEX, {"Id": INDEX, "RepoDigests": [f"r@{INDEX}"]}, None, True),
        (CONFIG, CONFIG, None, None, True),
        # The image was removed under the running container; its digest is known from the wanted one.
        (INDEX, CONFIG, None, {"Id": CONFIG, "RepoDigests": [f"r@{INDEX}"]}, True),
        (INDEX, OTHER, {"Id": OTHER, "RepoDigests": []}, {"Id": CONFIG, "RepoDigests": [f"r@{INDEX}"]}, False),
        (INDEX, CONFIG, {"Id": CONFIG, "RepoDigests": [f"r@{OTHER}"]}, None, False),
        (INDEX, CONFIG, None, None, False),
    ],
)
def test_index_digest_platform_digest_and_config_id_are_one_identity(
    wanted: str, container_image: str, live_image: Any, wanted_image: Any, same: bool
) -> None:
    def with_config(image: Any) -> Any:
        return image and {**image, "Config": IMAGE["Config"]}

    stack = replace(STACK, image=f"registry:5000/r@{wanted}")
    there = live(
        container=disturbed("Image", to=container_image),
        image=with_config(live_image),
        wanted_image=with_config(wanted_image),
    )
    items = [item for item, _action in found(stack, there)]
    assert ("image" not in items) == same


def edited(name: str, content: str, after_start: float, mode: str = "") -> dict[str, LiveFile]:
    file = STACK.files[name]
    return {**live().files, name: LiveFile(content, mode or file.mode, STARTED + after_start)}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (edited("compose.yaml", "other", 60), [("file compose.yaml", WRITE)]),
        (edited("compose.yaml", "other", -60), [("file compose.yaml", WRITE)]),
        (edited(".env", "TOKEN_X=other", 60), [("file .env", WRITE)]),
        (edited("vllm.yaml", "other", 60), [("file vllm.yaml", WRITE)]),
        (edited("vllm.yaml", "other", -60), [("file vllm.yaml", RECREATE)]),  # the engine started with the edit
        (edited("vllm.yaml", STACK.files["vllm.yaml"].content, -60, "0600"), [("file vllm.yaml mode", WRITE)]),
        (edited(".env", STACK.files[".env"].content, -60, "0644"), [("file .env mode", WRITE)]),
        ({name: file for name, file in live().files.items() if name != ".env"}, [("file .env", WRITE)]),
        ({}, [("file compose.yaml", WRITE), ("file vllm.yaml", WRITE), ("file .env", WRITE)]),
    ],
)
def test_files(files: dict[str, LiveFile], expected: list[tuple[str, str]]) -> None:
    assert sorted(found(STACK, live(files=files))) == sorted(expected)


def test_a_file_that_is_not_wanted_any_more_is_one() -> None:
    stack = replace(STACK, files={name: file for name, file in STACK.files.items() if name != ".env"})
    assert ("file .env", WRITE) in found(stack, live())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"container": None, "image": None}, [("container", CREATE)]),
        ({"container": None, "image": None, "wanted_image": None}, [("image", CREATE), ("container", CREATE)]),
        ({"duplicates": ("vllm-two-1",)}, [("container.duplicate", RECREATE)]),
        ({"receipt": None}, [("receipt", ASK)]),
        ({"receipt": {"hash": "other", "asked": True}}, [("receipt", ASK)]),
        ({"receipt": {"hash": STACK.hash, "asked": False}}, [("receipt", ASK)]),
        ({"endpoint": Endpoint(500)}, [("health", RECREATE)]),
        ({"endpoint": Endpoint(0, error="connection refused"), "now": STARTED + 5}, [("health", WAIT)]),
        ({"endpoint": Endpoint(0, error="connection refused"), "now": STARTED + 5000}, [("health", RECREATE)]),
        ({"endpoint": Endpoint(200, (), 200)}, [("served model", RECREATE)]),
        ({"endpoint": Endpoint(200, ({"id": "other"},), 200)}, [("served model", RECREATE)]),
        ({"endpoint": Endpoint(200, ({"id": "m2", "root": "/x"},), 200)}, [("served model root", RECREATE)]),
        ({"endpoint": Endpoint(200, ({"id": "m2", "max_model_len": 9},), 200)}, [("max_model_len", RECREATE)]),
    ],
)
def test_what_is_missing_or_does_not_answer(changes: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    there = live(**changes)
    # A run never asked for the proof of answers does not miss it.
    assert [one for one in found(STACK, there) if one not in [("receipt", ASK)] or "receipt" in changes] == expected


def test_without_asking_the_proof_of_a_start_is_enough() -> None:
    assert found(STACK, live(receipt={"hash": STACK.hash, "asked": False}), ask=False) == []


@pytest.mark.parametrize(
    ("service", "host"),
    [
        ({"gpus": "all"}, {"DeviceRequests": [{"Driver": "", "Count": -1, "DeviceIDs": None}]}),
        (
            {
                "deploy": {
                    "resources": {"reservations": {"devices": [{"driver": "cdi", "device_ids": ["nvidia.com/gpu=1"]}]}}
                }
            },
            {"DeviceRequests": [{"Driver": "cdi", "Count": 0, "DeviceIDs": ["nvidia.com/gpu=1"]}]},
        ),
        ({"devices": ["nvidia.com/gpu=0"]}, {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=0"]}]}),
        ({"devices": ["/dev/a"]}, {"Devices": [{"PathOnHost": "/dev/a", "PathInContainer": "/dev/a"}]}),
        ({"network_mode": "host", "ports": []}, {"NetworkMode": "host"}),
        ({"ipc": "host"}, {"IpcMode": "host"}),
        ({"shm_size": "16gb"}, {"ShmSize": 16 << 30}),
        ({"shm_size": 1024}, {"ShmSize": 1024}),
        ({"restart": "on-failure:3"}, {"RestartPolicy": {"Name": "on-failure", "MaximumRetryCount": 3}}),
        ({"runtime": "nvidia"}, {"Runtime": "nvidia"}),
        ({"mem_limit": "2g"}, {"Memory": 2 << 30}),
        ({"cap_add": ["SYS_PTRACE"]}, {"CapAdd": ["CAP_SYS_PTRACE"]}),
        (
            {"ulimits": {"memlock": -1, "nofile": {"soft": 1, "hard": 2}}},
            {"Ulimits": [{"Name": "memlock", "Soft": -1, "Hard": -1}, {"Name": "nofile", "Soft": 1, "Hard": 2}]},
        ),
        (
            {"ports": ["127.0.0.1:9000:8000", {"target": 53, "published": "5353", "protocol": "udp"}]},
            {
                "PortBindings": {
                    "8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": "9000"}],
                    "53/udp": [{"HostIp": "0.0.0.0", "HostPort": "5353"}],
                }
            },
        ),
    ],
)
def test_compose_and_docker_say_the_same_in_other_words(service: dict[str, Any], host: dict[str, Any]) -> None:
    definition = {**STACK.service_definition, **service}
    if "gpus" in service or "devices" in service:
        del definition["deploy"]
        host = {"DeviceRequests": None, **host}
    container = disturbed("HostConfig", to={**CONTAINER["HostConfig"], **host})
    items = [item for item, _action in found(replace(STACK, service_definition=definition), live(container=container))]
    assert items == []


def test_a_missing_or_added_device_is_seen_in_every_style() -> None:
    for gpus in ([], ["0"], ["0", "1"]):
        request = [{"Driver": "nvidia", "Count": 0, "DeviceIDs": gpus}] if gpus else None
        container = copy.deepcopy(CONTAINER)
        container["HostConfig"]["DeviceRequests"] = request
        (difference,) = drift.compare(STACK, live(container=container))
        assert (difference.item, difference.want) == ("devices", "'nvidia 1'")
        assert drift.gpus_of(container) == tuple(gpus)


def test_no_secret_is_in_a_difference_or_a_diff() -> None:
    there = live(
        files={**live().files, ".env": LiveFile("TOKEN_X='old-secret'\nEXTRA=hand-secret\n", "0644", 0.0)},
        container=disturbed("Config", "Env", to=["TOKEN_X=old-secret", "EXTRA=hand-secret"]),
    )
    differences = drift.compare(STACK, there)
    text = json.dumps([one.as_dict() for one in differences]) + json.dumps(
        rollout_report.diffs(STACK, there, differences)
    )
    assert "environment TOKEN_X" in text
    assert "TOKEN_X=(not shown, another)" in text
    for secret in (SECRET, json.dumps(SECRET)[1:-1], "old-secret", "hand-secret"):
        assert secret not in text


def test_a_secret_somebody_wrote_into_a_compose_file_is_not_shown() -> None:
    there = live(files={**live().files, "compose.yaml": LiveFile("environment:\n  HF_TOKEN: hf_abc\n", "0644", 0.0)})
    (block,) = rollout_report.diffs(STACK, there, ())
    assert "HF_TOKEN: (not shown)" in block["before"]
    assert "hf_abc" not in json.dumps(block)


def test_extra_containers_are_reported_and_removed_only_when_asked() -> None:
    assert [one.action for one in drift.extra([CONTAINER], ["one"], prune=False)] == [drift.REPORT]
    assert [one.action for one in drift.extra([CONTAINER], ["one"], prune=True)] == [drift.REMOVE]
    assert drift.extra([CONTAINER], ["two"], prune=True) == []
    # A unit without a container is left too; with one it is named once.
    left = drift.extra([CONTAINER], ["one"], units=["two", "one", "three"], prune=True)
    assert [(one.stack, one.item, one.action) for one in left] == [
        ("two", "stack", drift.REMOVE),
        ("three", "unit", drift.REMOVE),
    ]


@pytest.mark.parametrize(
    ("stamp", "seconds"),
    [("1970-01-01T00:00:10Z", 10.0), ("1970-01-01T00:00:10.5Z", 10.5), ("0001-01-01T00:00:00Z", None), ("", None)],
)
def test_docker_times(stamp: str, seconds: Any) -> None:
    assert drift.started_at(disturbed("State", "StartedAt", to=stamp)) == seconds


@pytest.mark.parametrize(
    ("version", "receipt", "expected"),
    [
        ("0.32.0", "0.32.0", []),
        ("0.32.0rc1.dev134+g0a1b2c", "", []),
        ("", "0.32.0", []),
        ("0.33.0", "0.33.0", [("engine version", drift.REPORT)]),
        ("0.33.0", "", [("engine version", drift.REPORT)]),
        ("0.33.0", "0.32.0", [("engine version", RECREATE)]),
    ],
)
def test_another_engine_than_the_inventory_says(version: str, receipt: str, expected: list[tuple[str, str]]) -> None:
    stack = replace(STACK, engine="0.32.0")
    there = live(receipt={"hash": STACK.hash, "asked": True, "engine": {"version": receipt}})
    assert there.endpoint is not None
    assert found(stack, replace(there, endpoint=replace(there.endpoint, version=version))) == expected


@pytest.mark.parametrize(
    ("nodes", "given", "expected"),
    [
        (None, True, []),
        (1, True, []),
        (0, True, [("cards in the container", RECREATE)]),
        (0, False, []),  # it was never given one, which is a difference of its own
    ],
)
def test_a_container_that_lost_its_card(nodes: Any, given: bool, expected: list[tuple[str, str]]) -> None:
    container = disturbed("HostConfig", "DeviceRequests", to=[{**OTHER_GPU[0], "DeviceIDs": ["0"]}] if given else None)
    stack = replace(STACK, gpus=(0,))
    seen = drift.compare(stack, live(container=container, gpu_nodes=nodes))
    assert [(one.item, one.action) for one in seen if one.item != "devices"] == expected


def test_a_folder_in_a_files_place_is_called_one_and_takes_another_container() -> None:
    there = live(files={**live().files, "vllm.yaml": LiveFile("", "0644", STARTED + 60, folder=True)})
    assert [(one.item, one.want, one.have, one.action) for one in drift.compare(STACK, there)] == [
        ("file vllm.yaml", "present", "a folder", RECREATE)
    ]
