# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A LiteLLM that somebody set up by hand, as ``fleet_gateway``."""

from __future__ import annotations

import posixpath
import re
from dataclasses import replace
from typing import Any, Collection, Mapping, Optional, Sequence

from . import compose, gateway_files, routes, secrecy
from .adoption import GATEWAY, KEPT, REPLACED, Adopted, Candidate, compose_size, config_inside, config_path
from .compose_reader import Source, size

ENVIRONMENT = "os.environ/"
ENGINE_PREFIXES = ("hosted_vllm/", "openai/", "vllm/")
# What the rendered configuration says itself; a value that says the same is no news.
OURS: Mapping[str, Mapping[str, Any]] = {
    "litellm_settings": {
        "drop_params": True,
        "json_logs": True,
        "turn_off_message_logging": True,
    },
    "general_settings": {
        "background_health_checks": True,
        "cancel_on_disconnect": True,
        "disable_spend_logs": True,
        "custom_auth_run_common_checks": True,
        "store_model_in_db": False,
    },
}
MADE_FROM_ROUTES = (
    *("health_check_interval", "health_check_concurrency", "background_health_check_model_groups"),
    *("custom_auth", "pass_through_endpoints"),
)


def adopt(
    candidates: Sequence[Candidate],
    sources: Mapping[str, Source],
    done: Adopted,
    *,
    hosts: Collection[str],
    settings: gateway_files.GatewaySettings,
) -> tuple[Optional[Candidate], gateway_files.GatewaySettings]:
    """Add ``fleet_gateway`` and its images to ``done``; what was adopted, and the settings that it takes.

    ``sources``: the files behind ``--config`` by their path on the host. ``hosts``: names that the inventory has; an
    address that is none of them needs a person to say whose it is.
    """
    named = {str(one.definition.get("container_name") or ""): one for one in candidates if one.kind == GATEWAY}
    if not named:
        return None, settings
    main = named.get(gateway_files.PROJECT, next(iter(named.values())))
    front = named.get(gateway_files.FRONT)
    twins = [name for name in named if front and re.fullmatch(f"{gateway_files.PROJECT}-[0-9]+", name)]
    for name, other in named.items():
        if other not in (main, front) and name not in twins:
            problem = f"{name or other.service.name} is another gateway."
            remedy = "A host has one; give this one a host of its own."
            done.note("not_expressed", other.service.place(), problem, remedy)
    if front:
        # The balancer has the port, and the instances behind it are alike.
        ports = front.definition.get("ports")
        main = replace(main, service=replace(main.service, definition={**main.definition, "ports": ports}))
        settings = replace(settings, instances=1 + len(twins))
        done.variables["litellm_gateway_instances"] = settings.instances
    source = sources.get(config_path(main.definition))
    others = [one for one in candidates if one not in (main, front)]
    beside = {name for one in others for name in (one.service.name, one.definition.get("container_name")) if name}
    _Gateway(main, front, source, done, hosts, settings, beside).adopt()
    return main, settings


class _Gateway:
    def __init__(
        self,
        candidate: Candidate,
        front: Optional[Candidate],
        source: Optional[Source],
        done: Adopted,
        hosts: Collection[str],
        settings: gateway_files.GatewaySettings,
        beside: Collection[str],
    ) -> None:
        self.candidate, self.front, self.source = candidate, front, source
        self.done, self.hosts, self.settings = done, hosts, settings
        self.beside = beside  # names by which the gateway reaches other containers now, and will not
        self.vault = secrecy.Vault(done.secrets, done.secret_places)
        self.environment = dict(candidate.definition.get("environment") or {})
        self.read: set[str] = set()  # variables that became a value
        self.config: Mapping[str, Any] = source.data if source and isinstance(source.data, Mapping) else {}
        self.gateway: dict[str, Any] = {}

    def adopt(self) -> None:
        if self.source is None:
            problem = "the gateway's configuration is not a file of the host that could be read."
            self._note(
                "not_expressed", self.candidate.service.place("command"), problem, "Write its settings yourself."
            )
        self.gateway["image"] = self._image(self.candidate)
        if self.front:
            self.gateway["balancer"] = self._image(self.front)
        self._port()
        self._secret("master_key", "LITELLM_MASTER_KEY")
        if "master_key" not in self.gateway:
            self.gateway["master_key"] = self.vault.variable("litellm", "litellm_master_key", "", self._place())
            problem = "the gateway runs without a master key, so that everybody may use it."
            self._note("to_decide", self._place("general_settings"), problem, "Make one: openssl rand -hex 24.")
        self._secret("database_url", "DATABASE_URL")
        self._database()
        self._routes()
        self._fallbacks()
        self._router()
        self._others()
        self._service()
        self.done.variables["fleet_gateway"] = self.gateway

    def _place(self, *at: str) -> str:
        return self.source.place(*at) if self.source else self.candidate.service.place()

    def _note(self, code: str, place: str, problem: str, remedy: str = "") -> None:
        self.done.note(code, place, problem, remedy)

    def _image(self, candidate: Candidate) -> str:
        entry = {"repository": candidate.repository}
        for key in ("tag", "digest", "engine"):
            if getattr(candidate, key):
                entry[key] = getattr(candidate, key)
        images = self.done.variables.setdefault("fleet_images", {})
        name = posixpath.basename(candidate.repository) or "litellm"
        name = name if images.get(name, entry) == entry else f"{name}-gateway"
        images[name] = entry
        if not candidate.digest:
            problem = f"nothing tells the digest of {candidate.repository}:{candidate.tag}."
            self._note("to_decide", candidate.service.place("image"), problem, "playbooks/pin.yml writes it.")
        if not candidate.engine and candidate is self.candidate:
            problem = f"nothing tells which LiteLLM is in {candidate.repository}:{candidate.tag}."
            self._note("to_decide", candidate.service.place("image"), problem, "Write engine: with its version.")
        return name

    def _port(self) -> None:
        definition = self.candidate.definition
        words = [str(word) for word in definition.get("command") or ()]
        inside = int(words[words.index("--port") + 1]) if "--port" in words[:-1] else gateway_files.PORT
        if definition.get("network_mode") == "host":
            self.gateway["port"] = inside
            return
        for port in definition.get("ports") or ():
            if port["target"] == inside and str(port.get("published", "")).isdigit():
                self.gateway["port"] = int(port["published"])
                address = str(port.get("host_ip") or "")
                if address not in compose.EVERY_ADDRESS and address != self.settings.listen:
                    self.gateway["listen"] = address
                return
        problem = f"publishes no fixed port of the host for LiteLLM's {inside}."
        self._note("to_decide", self.candidate.service.place("ports"), problem, "Write port:.")

    def _value(self, value: Any) -> tuple[str, str]:
        """(what stands behind ``os.environ/NAME``, the variable's name)."""
        text = str(value or "")
        if text.startswith(ENVIRONMENT):
            name = text[len(ENVIRONMENT) :]
            self.read.add(name)
            return str(self.environment.get(name) or ""), name
        return text, ""

    def _secret(self, key: str, variable: str) -> None:
        general = self.config.get("general_settings") or {}
        value, name = self._value(general.get(key))
        place = self._place("general_settings", key)
        if general.get(key) is None:
            if variable not in self.environment:
                return
            value, name = str(self.environment[variable] or ""), variable
            self.read.add(variable)
        if name:
            place = self.candidate.service.place("environment", name)
        self.gateway[key] = self.vault.variable("litellm", f"litellm_{key}", value, place)

    def _database(self) -> None:
        address = self._value((self.config.get("general_settings") or {}).get("database_url"))[0]
        match = re.match(r"\w+://(?:[^/]*@)?([^:/?]+)", address or str(self.environment.get("DATABASE_URL") or ""))
        if match and match[1] in self.beside:
            problem = f"the database is reached as {match[1]}, which the gateway of the inventory has no network with."
            remedy = "Publish its port, and write an address of its host into the vault variable of database_url."
            self._note("to_decide", self.candidate.service.place("environment", "DATABASE_URL"), problem, remedy)

    # ------------------------------------------------------------------ routes

    def _routes(self) -> None:
        aliases: dict[str, str] = dict((self.config.get("router_settings") or {}).get("model_group_alias") or {})
        timeouts: dict[str, set[int]] = {"timeout": set(), "stream_timeout": set()}
        for index, entry in enumerate(self.config.get("model_list") or ()):
            params = entry.get("litellm_params") or {}
            name, model = str(entry.get("model_name")), str(params.get("model") or "")
            place = self.source.place("model_list", index) if self.source else ""
            served = next((model[len(prefix) :] for prefix in ENGINE_PREFIXES if model.startswith(prefix)), "")
            if not served or not params.get("api_base"):
                remedy = "The gateway of the inventory routes to its stacks only."
                self._note("not_expressed", place, f"{name} leads to {model or 'nothing'}, not to an engine.", remedy)
                continue
            if name != served:
                if aliases.get(name, served) != served:
                    problem = f"{name} leads to {served} and to {aliases[name]}."
                    self._note("not_expressed", place, problem, "Only replicas of one model share a name.")
                    continue
                aliases[name] = served
            self._address(str(params["api_base"]), served, place)
            for key, found in timeouts.items():
                if isinstance(params.get(key), int):
                    found.add(params[key])
            extra = set(params) - {
                "model",
                "api_base",
                "api_key",
                "timeout",
                "stream_timeout",
                "litellm_credential_name",
            }
            for key in sorted(extra):
                where = "weight: on its stack" if key == "weight" else "nothing in the inventory"
                self._note("not_expressed", place, f"{name} has {key}; its place is {where}.", "Look at it.")
            if params.get("api_key") not in (None, "", "none", "None", "EMPTY", "dummy"):
                value, variable = self._value(params["api_key"])
                if not variable and value:
                    self.vault.variable(served, "api_key", value, place)
                remedy = "Write it as api_key: of that stack, from a vault variable."
                self._note("not_expressed", place, f"{name} is asked with a key of its engine.", remedy)
        if aliases:
            self.gateway["aliases"] = dict(sorted(aliases.items()))
        for key, found in timeouts.items():
            default = {"timeout": 600, "stream_timeout": 60}[key]
            if len(found) == 1 and found != {default}:
                self.gateway[key] = found.pop()

    def _address(self, base: str, served: str, place: str) -> None:
        match = re.match(r"https?://(?:[^/@]*@)?(\[[^\]]+\]|[^:/]+)(?::(\d+))?", base)
        host = match[1] if match else ""
        if host in self.hosts:
            return
        if host in self.beside:
            problem = f"{served} is asked as {host}, a container beside it: it will be asked at the port of its host."
            self._note("replaced", place, problem)
            return
        problem = f"{served} is asked at {secrecy.shown(host)}, which is no host of the inventory."
        remedy = f"Write addresses: {{HOST: {host}}} with the host whose stack that is, unless its own name will do."
        self._note("to_decide", place, problem, remedy)

    def _fallbacks(self) -> None:
        for key in ("fallbacks", "context_window_fallbacks"):
            found: dict[str, list[str]] = {}
            for part in ("litellm_settings", "router_settings"):
                for entry in (self.config.get(part) or {}).get(key) or ():
                    found.update({str(name): [str(other) for other in others] for name, others in entry.items()})
            aliases = self.gateway.get("aliases", {})
            # An alias has the stand-ins of its model by itself.
            found = {name: others for name, others in found.items() if found.get(aliases.get(name, "")) != others}
            if found:
                self.gateway[key] = found

    def _router(self) -> None:
        settings: dict[str, Any] = {}
        known = ("fallbacks", "context_window_fallbacks", "model_group_alias")
        for name, value in (self.config.get("router_settings") or {}).items():
            place = self._place("router_settings", name)
            if name in known or routes.ROUTER.get(name) == value:
                continue
            if name == "timeout" and isinstance(value, int):
                self.gateway.setdefault("timeout", value)
            elif name not in routes.ROUTER_KEYS:
                self._note("not_expressed", place, f"router_settings.{name} is not a setting of the inventory.", "")
            elif name == "redis_password":
                text, _variable = self._value(value)
                settings[name] = self.vault.variable("litellm", "litellm_redis_password", text, place)
            else:
                settings[name] = value
        if settings:
            self.gateway["settings"] = settings

    def _others(self) -> None:
        for part, ours in OURS.items():
            for name, value in (self.config.get(part) or {}).items():
                if name in ("master_key", "database_url", "fallbacks", "context_window_fallbacks", *MADE_FROM_ROUTES):
                    continue
                if name == "request_timeout" and isinstance(value, int):
                    if value != 600:
                        self.gateway.setdefault("timeout", value)
                elif ours.get(name, object()) != value:
                    remedy = "LiteLLM's own default, or what the collection sets, would hold."
                    self._note("not_expressed", self._place(part, name), f"{part}.{name} has no place.", remedy)
        for part in self.config:
            if part not in ("model_list", "router_settings", "include", *OURS):
                self._note("not_expressed", self._place(str(part)), f"{part} has no place in the inventory.", "")

    # ------------------------------------------------------------------ the service around it

    def _service(self) -> None:
        definition, service = self.candidate.definition, self.candidate.service
        base = gateway_files.base_service(
            "image", self.gateway.get("port", 4000), "", self.settings, self.candidate.directory
        )
        over: dict[str, Any] = {}
        plain = {}
        for name, value in sorted(self.environment.items()):
            if name in self.read or base["environment"].get(name) == value:
                continue
            if name in self.candidate.hidden or secrecy.is_secret(name, value or ""):
                self.done.withheld.add(value or "")
                problem = f"the variable {name} is a secret that no setting of the inventory takes."
                self._note("not_expressed", service.place("environment", name), problem, "Look whether it is needed.")
            elif value is not None:
                plain[name] = value
        if plain:
            over["environment"] = plain
        base["mem_limit"] = size(base["mem_limit"])
        for key, value in definition.items():
            if (
                key in KEPT
                and value not in (None, False, [], {}, base.get(key))
                and key not in ("user", "network_mode")
            ):
                over[key] = compose_size(value) if key in ("mem_limit", "mem_reservation") else value
        for volume in definition.get("volumes") or ():
            target = str(volume["target"])
            if target in (gateway_files.CONFIG_FOLDER, config_inside(definition)):
                continue
            remedy = "Write it under compose: of fleet_gateway if LiteLLM needs it."
            self._note("not_expressed", service.place("volumes"), f"{target} is mounted.", remedy)
        for key in definition:
            if REPLACED.get(key) and "modelfleet.gateway" not in (definition.get("labels") or {}):
                if key == "depends_on":
                    problem, remedy = f"it starts after {', '.join(definition[key])}.", "It will start by itself."
                    self._note("not_expressed", service.place(key), problem, remedy)
                else:
                    self._note("replaced", service.place(key), f"{key}: the gateway's role sets it.", "")
        if definition.get("networks"):
            problem = f"is in the network {', '.join(map(str, definition['networks']))}."
            remedy = "Engines are asked at their host's port."
            self._note("not_expressed", service.place("networks"), problem, remedy)
        if over:
            self.gateway["compose"] = over
