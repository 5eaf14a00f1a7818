# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is said about a host, for each thing that can be wrong with it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import gpus, host_check
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.host_check import EngineFacts, NvidiaFacts
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.host_packages import Need

UUID = "GPU-11111111-2222-3333-4444-555555555555"
CARD = gpus.Card(
    0, UUID, "NVIDIA H200", 143771, 616, 0, 143155, "580.159.04", mig_mode="Disabled", compute_mode="Default"
)
ENGINE = EngineFacts(
    there=True,
    answers=True,
    version="26.1.5+dfsg1",
    compose="2.26.1-4",
    sdk="there",
    cgroup_driver="systemd",
    runtimes=("nvidia", "runc"),
    cdi_dirs=("/etc/cdi",),
)
NVIDIA = NvidiaFacts(
    cards=(CARD,),
    cuda_version="13.0",
    module_version="580.159.04",
    hook=True,
    runtime=True,
    toolkit="1.18.1",
    cdi_devices=("0", UUID, "all"),
)


@pytest.mark.parametrize(
    ("change", "codes"),
    [
        ({}, []),
        ({"there": False, "answers": False, "version": ""}, ["container_engine_missing"]),
        ({"compose": ""}, ["compose_missing"]),
        ({"compose": "1.29.2"}, ["compose_missing"]),
        ({"compose": "v5.0.1"}, []),
        ({"sdk": ""}, ["docker_sdk_missing"]),
        ({"answers": False, "error": "permission denied"}, ["container_engine_down"]),
    ],
)
def test_engine(change, codes):
    engine = replace(ENGINE, **change)
    assert [one.code for one in host_check.engine_findings(engine, Need(), "ana", managed=False)] == codes
    # A managed host gets what is missing; there is nothing to refuse.
    assert host_check.engine_findings(engine, Need(), "ana", managed=True) == []


NO_TOOLKIT = {"hook": False, "runtime": False, "toolkit": ""}


@pytest.mark.parametrize(
    ("nvidia", "engine", "mode", "managed", "codes"),
    [
        pytest.param({}, {}, "nvidia", True, [], id="all is well"),
        pytest.param(NO_TOOLKIT, {}, "nvidia", False, ["nvidia_runtime_missing"], id="F63"),
        pytest.param(NO_TOOLKIT, {}, "nvidia", True, [], id="F63, to be installed"),
        pytest.param(NO_TOOLKIT, {}, "none", False, [], id="no cards wanted"),
        pytest.param({}, {"runtimes": ("runc",)}, "runtime", False, ["nvidia_runtime_missing"], id="F65"),
        pytest.param({"cdi_devices": ("all",)}, {}, "cdi", False, ["cdi_device_unresolvable"], id="F71"),
        pytest.param({"cdi_devices": ("all",)}, {}, "cdi", True, [], id="F71, to be generated"),
        pytest.param({"cdi_devices": ("all",)}, {}, "nvidia", False, [], id="CDI is not used"),
        pytest.param({}, {"cdi_dirs": ()}, "cdi", False, ["cdi_not_enabled"], id="CDI is off"),
        pytest.param(
            {}, {"cdi_dirs": (), "version": "20.10.24"}, "cdi", True, ["cdi_not_enabled"], id="too old for CDI"
        ),
        pytest.param({"module_version": "570.1"}, {}, "nvidia", True, ["driver_library_mismatch"], id="half updated"),
        pytest.param({"char_links": False}, {}, "nvidia", True, ["gpu_lost_at_reload"], id="F67"),
        pytest.param({"char_links": False}, {"cgroup_driver": "cgroupfs"}, "nvidia", True, [], id="F67, cgroupfs"),
        pytest.param({"char_links": False}, {}, "cdi", True, [], id="F67, CDI"),
        pytest.param({"cards": (replace(CARD, mig_mode="Enabled"),)}, {}, "nvidia", True, ["mig_enabled"], id="MIG"),
        pytest.param(
            {"cards": (replace(CARD, compute_mode="Exclusive_Process"),)},
            {},
            "nvidia",
            True,
            ["compute_mode_exclusive"],
            id="compute mode",
        ),
        pytest.param(
            {"units": {"nvidia-fabricmanager.service": "failed"}},
            {},
            "nvidia",
            True,
            ["fabric_manager_missing"],
            id="802",
        ),
        pytest.param({"nvswitch": True}, {}, "nvidia", True, ["fabric_manager_missing"], id="802, not installed"),
        pytest.param(
            {"nvswitch": True, "units": {"nvidia-fabricmanager.service": "inactive"}},
            {},
            "nvidia",
            True,
            ["fabric_manager_missing"],
            id="802, not started",
        ),
        pytest.param(
            {"nvswitch": True, "units": {"nvidia-fabricmanager.service": "active"}}, {}, "nvidia", True, [], id="fabric"
        ),
        pytest.param(
            {"units": {"nvidia-fabricmanager.service": "inactive"}}, {}, "nvidia", True, [], id="no NVSwitch, no need"
        ),
        pytest.param(
            {"cards": (replace(CARD, persistence_mode="Disabled"),)}, {}, "nvidia", True, ["persistence_off"], id="pm"
        ),
        pytest.param(
            {
                "cards": (replace(CARD, persistence_mode="Disabled"),),
                "units": {"nvidia-persistenced.service": "inactive"},
            },
            {},
            "nvidia",
            True,
            [],
            id="pm, started by the role",
        ),
    ],
)
def test_nvidia(nvidia, engine, mode, managed, codes):
    findings = host_check.nvidia_findings(
        replace(NVIDIA, **nvidia), replace(ENGINE, **engine), Need(), "ana", managed, mode
    )
    assert [one.code for one in findings] == codes


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("Failed to initialize NVML: Driver/library version mismatch", "driver_library_mismatch"),  # F69
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "nvidia_driver_not_loaded"),
    ],
)
def test_no_driver_is_never_something_to_install(words, code):
    facts = NvidiaFacts(trouble=gpus.explain(words))
    assert [one.code for one in host_check.nvidia_findings(facts, ENGINE, Need(), "ana", True, "nvidia")] == [code]


@pytest.mark.parametrize(
    ("requirement", "cuda", "fits"),
    [
        pytest.param("cuda>=12.8", "13.0", True, id="newer driver"),
        pytest.param("cuda>=12.8", "12.8", True, id="just new enough"),
        pytest.param("cuda>=12.8", "12.4", False, id="F73"),
        pytest.param("cuda>=12.8 brand=tesla,driver>=580,driver<581", "12.4", True, id="by compatibility libraries"),
        pytest.param("cuda>=12.8 brand=tesla,driver>=535,driver<536", "12.4", False, id="no alternative fits"),
        pytest.param("cuda>=12.8", "", True, id="the driver does not tell"),
    ],
)
def test_cuda(requirement, cuda, fits):
    findings = host_check.cuda_findings({"vllm@sha256:1": requirement}, replace(NVIDIA, cuda_version=cuda), "ana")
    assert [one.code for one in findings] == ([] if fits else ["driver_too_old"])


@pytest.mark.parametrize(
    ("stacks", "sets"),
    [
        ([], [(0,), (1,)]),
        ([{"gpus": [1]}, {"gpus": [1]}, {"gpus": [1, 0]}], [(1,), (0, 1)]),
        ([{"gpus": [7]}, {}], [(0,), (1,)]),
    ],
)
def test_card_sets(stacks, sets):
    assert host_check.card_sets(stacks, [0, 1]) == sets


@pytest.mark.parametrize(
    ("programs", "units", "commands"),
    [
        ((), {}, 0),
        (("nvidia-modprobe",), {}, 1),
        (("nvidia-ctk",), {}, 2),
        (("nvidia-modprobe", "nvidia-ctk"), {}, 3),
        (("nvidia-modprobe", "nvidia-ctk"), {"nvidia-cdi-refresh.service": "inactive"}, 2),
    ],
)
def test_boot_unit(programs, units, commands):
    unit = host_check.boot_unit(programs, units)
    assert unit.count("ExecStart=-") == commands
    assert ("cdi generate" in unit) == ("nvidia-ctk" in programs and not units)
    assert ("Before=docker.service" in unit) == bool(programs)


@pytest.mark.parametrize(
    ("units", "command"),
    [
        ({}, ("nvidia-ctk", "cdi", "generate", "--output=/etc/cdi/nvidia.yaml")),
        ({"nvidia-cdi-refresh.service": "inactive"}, ("systemctl", "restart", "nvidia-cdi-refresh.service")),
    ],
)
def test_who_writes_the_cdi_specification(units, command):
    assert replace(NVIDIA, units=units).cdi_command == command


@pytest.mark.parametrize(("state", "start"), [(None, False), ("active", False), ("inactive", True), ("failed", True)])
def test_persistence(state, start):
    units = {} if state is None else {"nvidia-persistenced.service": state}
    assert replace(NVIDIA, units=units).persistence_to_start is start


@pytest.mark.parametrize(
    ("mode", "cdi_dirs", "settings"),
    [
        ("nvidia", (), {"runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}}}),
        ("cdi", (), {"features": {"cdi": True}}),
        ("cdi", ("/etc/cdi",), {}),
        ("none", (), {}),
    ],
)
def test_daemon_settings(mode, cdi_dirs, settings):
    assert host_check.daemon_settings(mode, replace(ENGINE, cdi_dirs=cdi_dirs)) == settings


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("nvidia", ['--gpus="device=GPU-0,GPU-1"']),
        ("runtime", ["--runtime=nvidia", "--env=NVIDIA_VISIBLE_DEVICES=GPU-0,GPU-1"]),
        ("cdi", ["--device=nvidia.com/gpu=0", "--device=nvidia.com/gpu=1"]),
    ],
)
def test_cards_are_given_as_compose_gives_them(mode, options):
    assert host_check.card_options(mode, (0, 1), ("GPU-0", "GPU-1")) == options


@pytest.mark.parametrize(
    ("version", "refreshes"), [("", True), ("1.18", True), ("1.18.1", True), ("1.20", True), ("1.17.8", False)]
)
def test_toolkits_that_describe_the_cards_themselves(version, refreshes):
    assert host_check.refreshes_cdi(version) is refreshes
