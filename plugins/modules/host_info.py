#!/usr/bin/python
# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: host_info
short_description: Look at the container engine and the NVIDIA side of a host, and say what is missing
version_added: 0.1.0
author: [modelfleet contributors (@modelfleet)]
description:
  - Reads in one execution what the roles container_engine and nvidia_runtime need to know (engine, Compose, SDK,
    runtimes, CDI, cards, driver, toolkit) and judges it.
  - What a managed host lacks is returned as packages to install. On a host that is not managed it is a failure that
    says what to do.
options:
  host:
    description: Name of the host in the inventory; only used in messages.
    type: str
    default: this host
  engine:
    description: Look at the container engine, and judge it by this. Left out, it is not judged.
    type: dict
    suboptions:
      manage:
        description: Whether what is missing is to be installed instead of reported.
        type: bool
        default: true
      source:
        description:
          - Where the engine comes from. V(auto) is the distribution where it has Compose 2, and Docker's repository
            otherwise. Only for the engine.
        type: str
        choices: [auto, distribution, docker]
        default: auto
      config:
        description: What daemon.json is to hold, as in M(modelfleet.inference.container_engine_config).
        type: dict
        default: {}
      version:
        description: Install this version only, or the newest that begins with it.
        type: str
        default: ""
      url:
        description: A mirror of the repository, in the vendor's layout.
        type: str
        default: ""
      key_url:
        description: Where the key lies, if not at its usual place below O(engine.url).
        type: str
        default: ""
      fingerprints:
        description: Fingerprints of the keys that may sign the repository, if not the vendor's.
        type: list
        elements: str
        default: []
  nvidia:
    description: Look at the NVIDIA side, and judge it by this. Left out, it is not looked at.
    type: dict
    suboptions:
      manage:
        description: Whether what is missing is to be installed instead of reported.
        type: bool
        default: true
      version:
        description: Install this version of the toolkit only, or the newest that begins with it.
        type: str
        default: ""
      url:
        description: A mirror of the repository, in the vendor's layout.
        type: str
        default: ""
      key_url:
        description: Where the key lies, if not at its usual place below O(nvidia.url).
        type: str
        default: ""
      fingerprints:
        description: Fingerprints of the keys that may sign the repository, if not the vendor's.
        type: list
        elements: str
        default: []
      mode:
        description: How containers get their cards.
        type: str
        choices: [nvidia, runtime, cdi, none]
        default: nvidia
      gpus:
        description: The inventory's C(fleet_gpus), which the cards are compared with.
        type: list
        elements: dict
        default: []
      images:
        description: The inventory's C(fleet_images). Of those that are on the host, the CUDA they need is compared.
        type: dict
        default: {}
extends_documentation_fragment:
  - modelfleet.inference.attributes
  - modelfleet.inference.attributes.info
seealso:
  - module: modelfleet.inference.gpu_info
"""

EXAMPLES = r"""
- name: Look at the whole host without changing anything, and fail where a model could not run
  modelfleet.inference.host_info:
    engine: {manage: false}
    nvidia: {manage: false, gpus: "{{ fleet_gpus }}"}
"""

RETURN = r"""
engine:
  description:
    - The container engine. C(configured) says that M(modelfleet.inference.container_engine_config) would find
      nothing to do and nothing to say.
  returned: always
  type: dict
  sample:
    there: true
    answers: true
    version: 26.1.5+dfsg1
    compose: 2.26.1-4
    runtimes: [nvidia, runc]
    running: 5
    missing: []
    complete: true
    configured: true
    need: {packages: [], repository: null}
nvidia:
  description: The NVIDIA side; empty when O(nvidia) is left out.
  returned: always
  type: dict
  sample:
    cuda_version: "13.0"
    toolkit: 1.18.1
    cdi_devices: ["0", "1", all]
    has_toolkit: true
    daemon_config: {runtimes: {nvidia: {path: nvidia-container-runtime, args: []}}}
    configured: true
    stale: false
    generate_cdi: false
    cdi_command: [nvidia-ctk, cdi, generate, --output=/etc/cdi/nvidia.yaml]
    boot_unit: {path: /etc/systemd/system/gpu-nodes.modelfleet.service, text: "", commands: [], write: false}
    start_persistence: false
    need: {packages: [], repository: null}
notes:
  description: What a person should know, each shown as a warning.
  returned: always
  type: list
  elements: str
  sample: ["ana-ml2: GPU 1: GPU 1 of ana-ml2 is in compute mode Exclusive_Process ..."]
findings:
  description: What is wrong, each with code, place, problem, remedy and severity. Warnings are shown by themselves.
  returned: always
  type: list
  elements: dict
  sample:
    - code: nvidia_runtime_missing
      place: ana-ml2
      problem: ana-ml2 has no NVIDIA Container Toolkit (nvidia-container-runtime and its hook).
      remedy: Install nvidia-container-toolkit ...
      severity: error
"""

from dataclasses import asdict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters import host as looker
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import gpus, host_check, host_packages
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.errors import WARNING, FleetError, errors
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.model import Gpu
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.sizes import parse_size

PACKAGES = {
    "manage": {"type": "bool", "default": True},
    "version": {"type": "str", "default": ""},
    "url": {"type": "str", "default": ""},
    "key_url": {"type": "str", "default": "", "no_log": False},
    "fingerprints": {"type": "list", "elements": "str", "default": []},
}
ENGINE = {
    **PACKAGES,
    "source": {"type": "str", "choices": ["auto", "distribution", "docker"], "default": "auto"},
    "config": {"type": "dict", "default": {}},
}
NVIDIA = {
    **PACKAGES,
    "mode": {"type": "str", "choices": ["nvidia", "runtime", "cdi", "none"], "default": "nvidia"},
    "gpus": {"type": "list", "elements": "dict", "default": []},
    "images": {"type": "dict", "default": {}},
}


def from_where(wanted):
    return {name: wanted[name] for name in ("version", "url", "key_url", "fingerprints")}


def judge_engine(wanted, engine, system, host):
    """The engine as the result shows it, and the findings."""
    need = host_packages.Need()
    findings = []
    if wanted:
        need = host_packages.for_engine(
            system,
            engine.missing,
            host=host,
            source=wanted["source"],
            origin=engine.origin,
            **from_where(wanted),
        )
        findings = host_check.engine_findings(engine, need, host, wanted["manage"])
    return {
        **asdict(engine),
        "missing": list(engine.missing),
        "complete": engine.complete,
        "configured": looker.configured(wanted["config"] if wanted else {}, engine.runtimes),
        "need": need.as_dict(),
    }, findings


def judge_nvidia(wanted, engine, system, host):
    """The NVIDIA side as the result shows it, and the findings."""
    nvidia = looker.nvidia(engine.cdi_dirs)
    need = host_packages.Need()
    if wanted["mode"] != "none" and not nvidia.has_toolkit:
        need = host_packages.for_toolkit(system, host=host, **from_where(wanted))
    findings = host_check.nvidia_findings(nvidia, engine, need, host, wanted["manage"], wanted["mode"])
    if not nvidia.trouble:
        findings += gpus.compare([expected(card) for card in wanted["gpus"]], nvidia.cards, host)
        references = [f"{image.get('repository')}@{image.get('digest')}" for image in wanted["images"].values()]
        findings += host_check.cuda_findings(looker.cuda_requirements(references), nvidia, host)
    # In check mode nothing is installed between this look and what follows from it.
    comes = bool(wanted["manage"] and need.packages)
    programs = (*nvidia.programs, host_check.CTK) if comes else nvidia.programs
    refreshes = comes and host_check.refreshes_cdi(wanted["version"])
    unit = host_check.boot_unit(programs, {**nvidia.units, host_check.CDI_REFRESH: ""} if refreshes else nvidia.units)
    write_unit = bool(unit) and unit != nvidia.boot_unit
    generate_cdi = bool((nvidia.toolkit or comes) and (nvidia.cdi_missing or nvidia.cdi_stale)) and not refreshes
    config = host_check.daemon_settings(wanted["mode"], engine)
    return {
        **asdict(nvidia),
        "cards": [card.as_dict() for card in nvidia.cards],
        "has_toolkit": nvidia.has_toolkit,
        "need": need.as_dict(),
        "daemon_config": config,
        "configured": looker.configured(config, engine.runtimes),
        "stale": generate_cdi or write_unit or nvidia.persistence_to_start,
        "generate_cdi": generate_cdi,
        "cdi_command": list(nvidia.cdi_command),
        "boot_unit": {
            "name": host_check.BOOT_UNIT,
            "path": f"{looker.UNIT_DIRECTORY}/{host_check.BOOT_UNIT}",
            "text": unit,
            "commands": [list(argv) for program, argv in host_check.BOOT_COMMANDS if program in programs],
            "write": write_unit,
        },
        "start_persistence": nvidia.persistence_to_start,
    }, findings


def expected(card):
    memory = card.get("memory")
    return Gpu(
        int(card["index"]),
        card.get("uuid") or "",
        parse_size(memory) if memory else None,
        str(card.get("compute_capability") or ""),
    )


def main():
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "default": "this host"},
            "engine": {"type": "dict", "options": ENGINE},
            "nvidia": {"type": "dict", "options": NVIDIA},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    system, engine = looker.system(), looker.engine()
    result = {"changed": False, "nvidia": {}}
    result["engine"], findings = judge_engine(wanted["engine"], engine, system, wanted["host"])
    if wanted["nvidia"]:
        result["nvidia"], more = judge_nvidia(wanted["nvidia"], engine, system, wanted["host"])
        findings += more
    result["findings"] = [asdict(finding) for finding in findings]
    result["notes"] = [str(finding) for finding in findings if finding.severity == WARNING]
    if errors(findings):
        module.fail_json(msg=str(FleetError(errors(findings))), **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
