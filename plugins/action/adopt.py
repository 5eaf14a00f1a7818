# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make inventory of what runs: one look at the host, thinking here, one comparison there. Secrets stay in memory."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import secrets
import zlib
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ..module_utils.fleet import (
    adopt_container,
    adopt_gateway,
    adopt_view,
    adoption,
    compose,
    compose_reader,
    drift,
    gateway_files,
    inventory,
    plan,
    plan_view,
    routes,
    secrecy,
)
from ..module_utils.fleet.errors import Finding, FleetError
from ..plugin_utils import host_stacks, yaml_source
from ..plugin_utils.replace_file import replace

display = Display()

CLIENT_KEYS = Path(__file__).resolve().parents[2] / "roles" / "litellm_gateway" / "files" / "client_keys.py"
STACK_VARIABLES = {"timeout_s": "vllm_stack_timeout", "extra": "vllm_stack_compose"}
# True only once the stacks of the other hosts are in the inventory as well.
OF_OTHER_HOSTS = ("alias_unknown", "fallback_unknown")


class ActionModule(ActionBase):  # type: ignore[misc]
    _supports_check_mode = True
    _supports_diff = True

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _result, options = self.validate_argument_spec(
            {
                "compose_file": {"type": "path"},
                "directory": {"type": "str", "default": ""},
                "to": {"type": "path"},
                "roots": {"type": "list", "elements": "path"},
                "known_hosts": {"type": "list", "elements": "str", "default": []},
            }
        )
        host = task_vars["inventory_hostname"]
        settings = _settings(compose.StackSettings, "vllm_stack_", task_vars["hostvars"][host], STACK_VARIABLES)
        gateway_settings = _settings(gateway_files.GatewaySettings, "litellm_gateway_", task_vars["hostvars"][host], {})
        file = options["compose_file"]
        try:
            if file:
                origin, cards = _shown(file), None
                candidates, sources, findings = _of_file(file, options["directory"])
                others: list[dict[str, Any]] = []
            else:
                origin = f"what runs on {host}"
                key = secrets.token_hex(32)
                looked = self._execute_module(
                    "modelfleet.inference.adopt_look",
                    {"host": host, "roots": options["roots"] or [settings.root], "key": key},
                    task_vars=task_vars,
                )
                if looked.get("failed") or "sealed" not in looked:
                    return {name: looked[name] for name in ("failed", "unreachable", "msg") if name in looked}
                seen = json.loads(zlib.decompress(secrecy.sealed(base64.b64decode(looked["sealed"]), key)))
                cards = None if seen["cards"] is None else [adoption.Card(**card) for card in seen["cards"]]
                candidates, sources, findings = _of_host(seen)
                others = seen["others"]
            done = adoption.adopt(candidates, host=host, settings=settings, cards=cards)
            done.findings = [*findings, *done.findings]
            gateway, gateway_settings = adopt_gateway.adopt(
                candidates, sources, done, hosts=[*options["known_hosts"], host], settings=gateway_settings
            )
        except FleetError as error:
            return {"failed": True, "changed": False, "msg": str(error)}
        for other in others:
            what = "no model server" if other["kind"] == adoption.OTHER else f"not running ({other['state']})"
            done.note("left_alone", f"container {other['name']}", f"{other['image']} is {what}.")

        variables = done.variables
        settings = dataclasses.replace(
            settings,
            gpu_mode=variables.get("vllm_stack_gpu_mode", settings.gpu_mode),
            hub_cache=variables.get("vllm_stack_hub_cache", settings.hub_cache),
        )
        planned, made = _plan(done, host, settings)
        differences: list[dict[str, str]] = []
        compared: dict[str, Any] = {}
        more: list[str] = []
        if made and not file:
            compared, more = self._compare(made, host, settings, candidates, gateway, gateway_settings, task_vars)
            differences = [one for found in compared.values() for one in found["differences"]]
        text = adopt_view.inventory(done, origin)
        lines = ["", f"--- {origin}", text.rstrip(), *adopt_view.notes(done), *adopt_view.planned(planned)]
        if compared or more:
            lines += adopt_view.comparison(compared, more)
        # Standard error: standard output belongs to the callback, which may print JSON there.
        display.display(secrecy.scrubbed("\n".join([*lines, ""]), done.values_to_hide), stderr=True)
        result: dict[str, Any] = {
            "changed": False,
            "inventory": {name: value for name, value in variables.items() if adopt_view.said(done, name)},
            "yaml": text,
            "findings": [plan_view.finding_json(finding) for finding in done.findings],
            "plan_findings": [plan_view.finding_json(finding) for finding in planned],
            "refused": any(finding.severity == "error" for finding in planned),
            "restarts": adopt_view.restarts(compared),
            "differences": differences,
            "secrets": dict(done.secret_places),
        }
        result = secrecy.scrubbed(result, done.values_to_hide)
        if options["to"]:
            result.update(self._write(options["to"], text, host, task_vars))
        return result

    def _compare(
        self,
        made: plan.FleetPlan,
        host: str,
        settings: compose.StackSettings,
        candidates: list[adoption.Candidate],
        running: adoption.Candidate | None,
        gateway_settings: gateway_files.GatewaySettings,
        task_vars: Any,
    ) -> tuple[dict[str, Any], list[str]]:
        """What a first run would find different, by stack; and what cannot be told."""
        compared: dict[str, Any] = {}
        more: list[str] = []
        stacks = host_stacks.rendered(made.fleet.hosts[host].stacks, settings, made.fleet.hosts[host])
        if stacks:
            arguments = {
                "stacks": [stack.as_dict() for stack in stacks],
                "root": settings.root,
                "host": host,
                "secrets": sorted({secret for stack in stacks for secret in stack.secrets}),
            }
            looked = self._execute_module("modelfleet.inference.stack_compare", arguments, task_vars=task_vars)
            if looked.get("failed") or "stacks" not in looked:
                more.append(f"not compared: {looked.get('msg', 'the host gave no answer')}")
            else:
                compared.update(looked["stacks"])
        gateway = made.fleet.gateways.get(host)
        if gateway and running and running.live:
            rendered = gateway_files.render(
                routes.make(made.fleet, gateway), gateway_settings, CLIENT_KEYS.read_text(encoding="utf-8")
            )
            container, image = running.live
            # A container of that name that it did not make is nothing that the gateway's role would replace.
            ours = gateway_files.LABEL_GATEWAY in (container["Config"].get("Labels") or {})
            beside = {
                one.live[0]["Name"].lstrip("/"): one.live[0]
                for one in candidates
                if one.kind == adoption.GATEWAY and one.live and one.live[0]["Id"] != container["Id"]
            }
            live = gateway_files.LiveGateway(
                container=container if ours else None,
                image=image,
                wanted_image=image,
                beside=beside if ours else {},
            )
            found = [
                one.as_dict()
                for one in gateway_files.compare(rendered, live, ask=False)
                if one.action in gateway_files.REPLACES
            ]
            step = drift.WRITE if not found else drift.RECREATE if ours else drift.CREATE
            compared["gateway"] = {"step": step, "differences": found}
            if not ours:
                name = container["Name"].lstrip("/")
                more.append(
                    f"gateway: remove {name} first (docker rm -f {name}): its port is taken and it is not ours."
                )
        return compared, more

    def _write(self, path: str, text: str, host: str, task_vars: Any) -> dict[str, Any]:
        hosts = task_vars.get("ansible_play_hosts_all") or [host]
        if len(hosts) > 1 and host not in path:
            remedy = "such as -e 'adopt_to=host_vars/{{ inventory_hostname }}/fleet.yml'"
            problem = f"{len(hosts)} hosts would write the same file: put the host's name into it, {remedy}."
            return {"failed": True, "msg": f"to: {path}: {problem}"}
        try:
            before = Path(path).read_text(encoding="utf-8")
        except FileNotFoundError:
            before = ""
        except (OSError, UnicodeDecodeError) as error:
            return {"failed": True, "msg": f"to: {path} cannot be read: {error}"}
        if before and not before.startswith(f"# {adopt_view.MARK}"):
            return {"failed": True, "msg": f"to: {path} is there and did not come from here. Name another file."}
        changed: dict[str, Any] = {"changed": before != text}
        if self._task.diff and before != text:
            changed["diff"] = {"before": before, "after": text, "before_header": path, "after_header": path}
        if before != text and not self._task.check_mode:
            try:
                replace({path: text})
            except OSError as error:
                return {"failed": True, "msg": f"to: {path} cannot be written: {error.strerror}"}
        return changed


def _settings(kind: Any, prefix: str, variables: Any, others: dict[str, str]) -> Any:
    """The role's variables of this host, where the inventory sets them."""
    given: dict[str, Any] = {}
    for each in dataclasses.fields(kind):
        name = others.get(each.name, prefix + each.name)
        if name in variables:
            value = variables[name]
            if each.type == "bool":
                value = value if isinstance(value, bool) else str(value).lower() in ("true", "yes", "on", "1")
            given[each.name] = int(value) if each.type == "int" else str(value) if each.type == "str" else value
    return kind(**given)


def _shown(path: str) -> str:
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def _of_file(
    path: str, directory: str
) -> tuple[list[adoption.Candidate], dict[str, compose_reader.Source], list[Finding]]:
    """``directory``: where the file stands on its host; files that it names are looked for beside it here."""
    here = os.path.dirname(os.path.abspath(path))
    there = directory or here

    def read(name: str) -> str | None:
        if name == there or name.startswith(there.rstrip("/") + "/"):
            name = here + name[len(there.rstrip("/")) :]
        try:
            return Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return None

    text = read(os.path.join(there, os.path.basename(path)))
    if text is None:
        raise FleetError([Finding("not_readable", path, "cannot be read.", "Name a Compose file on the controller.")])
    return _of_compose(yaml_source.for_compose(text, _shown(path)), there, read, elsewhere=not directory)


def _of_compose(
    source: compose_reader.Source, directory: str, read: compose_reader.Files, *, elsewhere: bool
) -> tuple[list[adoption.Candidate], dict[str, compose_reader.Source], list[Finding]]:
    project = compose_reader.read(source, directory, read, elsewhere=elsewhere)
    sources: dict[str, compose_reader.Source] = {}
    candidates = []
    for service in project.services:
        candidate = adoption.of_service(service, project)
        path = adoption.config_path(service.definition)
        text = read(path) if path else None
        if text is not None:
            sources[path] = yaml_source.for_python(text, path)
            candidate = dataclasses.replace(candidate, config=_mapping(sources[path]))
        candidates.append(candidate)
    return candidates, sources, list(project.findings)


def _of_host(
    seen: dict[str, Any],
) -> tuple[list[adoption.Candidate], dict[str, compose_reader.Source], list[Finding]]:
    sources: dict[str, compose_reader.Source] = {}
    findings: list[Finding] = []
    candidates = []
    projects = [adopt_container.project_of(one["container"])[0] for one in seen["found"]]
    projects += [one["project"] for one in seen["others"]]
    for one in seen["found"]:
        config: dict[str, Any] = {}
        for path, text in one["texts"].items():
            if text:
                sources[path] = yaml_source.for_python(text, path)
                config = _mapping(sources[path])
        candidates.append(
            adoption.of_container(
                one["container"],
                one["image"],
                kind=one["kind"],
                engine=one["version"],
                config=config,
                sole=projects.count(adopt_container.project_of(one["container"])[0]) == 1,
                hidden=frozenset(one["hidden"]),
                asked=tuple(one["asked"]),
            )
        )
    for folder, there in seen["folders"].items():
        texts = there["texts"]
        try:
            source = yaml_source.for_compose(texts[there["file"]], there["file"])
            more, its_sources, its = _of_compose(source, folder, texts.get, elsewhere=False)
        except FleetError as error:
            findings += error.findings
            continue
        candidates += [one for one in more if one.kind != adoption.OTHER]
        sources.update(its_sources)
        findings += its
    return candidates, sources, findings


def _mapping(source: compose_reader.Source) -> dict[str, Any]:
    return dict(source.data) if isinstance(source.data, dict) else {}


def _plan(
    done: adoption.Adopted, host: str, settings: compose.StackSettings
) -> tuple[list[Finding], plan.FleetPlan | None]:
    """(what the plan says, the plan when the inventory has its shape)."""
    filled = {name: value for name, value in done.filled().items() if name.startswith("fleet_") and value}
    as_shown = {**filled, "fleet_models": done.variables.get("fleet_models", {})}
    gpu_hosts = [host] if filled.get("fleet_stacks") else []
    gateways = [host] if "fleet_gateway" in filled else []
    if not gpu_hosts and not gateways:
        return [], None
    findings: list[Finding] = []
    try:
        inventory.parse({host: as_shown}, gpu_hosts=gpu_hosts, gateways=gateways)
    except FleetError as error:
        findings = list(error.findings)
    try:
        fleet = inventory.parse({host: filled}, gpu_hosts=gpu_hosts, gateways=gateways)
    except FleetError:
        return findings, None
    made = plan.make(fleet, defaults=plan.PlanDefaults(settings=settings))
    known = [one for one in made.findings if gpu_hosts or one.code not in OF_OTHER_HOSTS]
    return [*findings, *known], made
