# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stack as the files that Docker Compose starts: ``compose.yaml``, ``vllm.yaml`` and, for secrets only, ``.env``.

A person on the host must be able to read them, and ``docker compose up -d`` there must mean what the rollout means.
Every ``$`` of the inventory reaches the container unchanged, in all three files.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import Any, Mapping, Optional

from . import options, yaml_text
from .errors import ERROR, WARNING, Finding
from .model import Host, Stack
from .rendered import LABEL_HASH, LABEL_STACK, RenderedFile, RenderedStack

ENGINE_PORT = 8000  # inside the container; with the host's network the engine listens on the stack's own port
CONFIG_PATH = "/etc/modelfleet/vllm.yaml"
HF_HOME = "/root/.cache/huggingface"
ENGINE_CACHE = "/root/.cache/vllm"
MEDIA_CACHE = "/var/cache/vllm-media"
GPU_MODES = ("nvidia", "runtime", "cdi", "none")
EVERY_ADDRESS = ("", "0.0.0.0", "::", "*")

# What the stack or the collection decides; the same key under `compose:` would silently contradict it.
OWNED = {
    "image": "set the stack's `image` to the name of a fleet_images entry",
    "build": "build and push the image yourself, then pin it in fleet_images",
    "container_name": "set the stack's `container`",
    "command": "set options under the stack's `args`",
    "entrypoint": "choose an image whose entrypoint is `vllm serve`",
    "env_file": "put the values under the stack's `env` or `secrets`",
    "depends_on": "stacks on one GPU already start in inventory order, after a reboot too",
}


@dataclass(frozen=True)
class StackSettings:
    """What is the same for every stack of a host: the ``vllm_stack_*`` variables of the role."""

    root: str = "/opt/docker/compose"  # one folder a stack below it
    hub_cache: str = "/opt/models/hub"  # HF_HOME of every stack
    engine_cache: str = "/opt/models/vllm-cache"  # compiled kernels, one folder for each image and model
    media_cache: str = ""  # downloaded pictures and videos; empty: none is kept on the host
    models: str = "/opt/models"
    gpu_mode: str = "nvidia"  # one of GPU_MODES
    listen: str = "0.0.0.0"  # the default of a stack's own `listen`
    shm_size: str = "8gb"
    hub_offline: bool = False
    hub_token: str = ""  # secret
    restart: str = "no"  # the stack's unit starts it again, in order; Docker would start all at once
    units: bool = True  # a systemd unit for each stack
    crash_restarts: int = 3  # so often a unit starts an engine again that died, until somebody looks
    timeout_s: int = 1800  # seconds a stack may take until it is ready
    extra: Mapping[str, Any] = field(default_factory=dict)  # merged over every service, below a stack's `compose`


def render(stack: Stack, settings: StackSettings, host: Optional[Host] = None) -> RenderedStack:
    """The files of this stack and what must be true when they run. ``host`` gives the GPUs their UUIDs.

    ``settings.extra`` and then ``stack.compose`` are merged over the service: mappings key by key, ``null`` removes a
    key, lists are replaced; except that ``environment`` may be a list or a mapping and is always merged, and
    ``volumes`` are added (one with the same target replaces ours).
    """
    known = {gpu.index: gpu.uuid for gpu in host.gpus} if host is not None else {}
    uuids = tuple(known.get(index, "") for index in stack.gpus)
    directory = f"{settings.root.rstrip('/')}/{stack.name}"
    secrets = _secrets(stack, settings)

    overrides = merge(dict(settings.extra), stack.compose)
    on_host_network = overrides.get("network_mode") == "host"
    listen = stack.listen or settings.listen
    port = stack.port if on_host_network else ENGINE_PORT

    config = _config(stack, port, listen if on_host_network else "")
    service = _service(stack, settings, uuids, directory, port, listen, bool(secrets))
    for over in (settings.extra, stack.compose):
        service = merge(service, over)
    if on_host_network:
        service.pop("ports", None)
    if service.get("runtime") == "nvidia" and stack.gpus:
        # The images say NVIDIA_VISIBLE_DEVICES=all, and this runtime obeys the variable.
        service["environment"].setdefault("NVIDIA_VISIBLE_DEVICES", ",".join(_device_ids(stack, uuids)))
    service["environment"] = {
        name: value for name, value in sorted(service["environment"].items()) if name not in secrets
    }

    digest = _digest(service, config, secrets)
    labels = {LABEL_STACK: stack.name, LABEL_HASH: digest}
    service["labels"] = {**service.get("labels", {}), **labels}

    written_by = [
        "Written by modelfleet.inference. Do not edit here: the next run puts it back.",
        # Without the position: moving a stack in the list must not change the files of the others.
        f"Edit {stack.name} in fleet_stacks (host_vars of {stack.host}), or {stack.model.name} in fleet_models.",
    ]
    files = {
        "compose.yaml": RenderedFile(
            yaml_text.dump({"name": stack.name, "services": {stack.name: escaped(service)}}, written_by)
        ),
        "vllm.yaml": RenderedFile(yaml_text.dump(config, written_by)),
    }
    if secrets:
        lines = [f"# {line}" for line in written_by]
        lines += [f"{name}={env_quoted(value)}" for name, value in sorted(secrets.items())]
        files[".env"] = RenderedFile("\n".join(lines) + "\n", mode="0600", secret=True)

    return RenderedStack(
        host=stack.host,
        name=stack.name,
        position=stack.position,
        directory=directory,
        container=stack.container,
        service=stack.name,
        image=stack.image.reference,
        url=f"http://{'127.0.0.1' if listen in EVERY_ADDRESS else bracketed(listen)}:{stack.port}",
        served_model_name=stack.served_model_name,
        root=stack.model.source,
        max_model_len=options.tokens(stack.args.get("max_model_len")),
        gpus=stack.gpus,
        gpu_uuids=uuids,
        share=stack.gpu_memory_utilization,
        kv_cache=stack.kv_cache,
        min_kv_tokens=stack.min_kv_tokens,
        timeout_s=settings.timeout_s,
        files=files,
        service_definition=service,
        secret_environment=dict(sorted(secrets.items())),
        hash=digest,
        labels=labels,
        asks=asks(stack),
        secrets=tuple(sorted({value for value in secrets.values() if value})),
        api_key=stack.api_key,
        engine=stack.image.engine,
        folders=_folders(service, settings),
        weights=_weights(stack, service),
    )


def _folders(service: Mapping[str, Any], settings: StackSettings) -> dict[str, str]:
    """Of the folders that the service mounts, those below the places for caches, with the mode to make them with."""
    # Pictures that users sent are nobody else's business.
    places = {settings.hub_cache: "0755", settings.engine_cache: "0755", settings.media_cache: "0700"}
    found = {}
    for source in map(_source, service["volumes"]):
        for place, mode in places.items():
            if place and f"{source}/".startswith(f"{place.rstrip('/')}/"):
                found[source] = mode
    return found


def _weights(stack: Stack, service: Mapping[str, Any]) -> dict[str, str]:
    """Where the engine looks for the weights of a model from the hub; empty when it looks elsewhere."""
    home = service["environment"].get("HF_HOME", "")
    cache = next((_source(volume) for volume in service["volumes"] if _target(volume) == home), "")
    if stack.model.source.startswith("/") or "download_dir" in stack.args or not cache.startswith("/"):
        return {}
    return {"repo": stack.model.source, "revision": stack.model.revision or "", "cache": cache, "home": home}


def _secrets(stack: Stack, settings: StackSettings) -> dict[str, str]:
    """The environment that may only stand in .env. The stack's own secrets beat the ones made here."""
    secrets = {}
    if settings.hub_token:
        secrets["HF_TOKEN"] = settings.hub_token
    if stack.api_key:
        secrets["VLLM_API_KEY"] = stack.api_key
    return {**secrets, **stack.secrets}


def _config(stack: Stack, port: int, listen: str) -> dict[str, Any]:
    """vllm.yaml: what the stack decides first, then the options in alphabetical order."""
    config: dict[str, Any] = {"model": stack.model.source}
    if stack.model.revision:
        config["revision"] = stack.model.revision
    config["served-model-name"] = stack.served_model_name
    if listen:
        config["host"] = listen
    config["port"] = port
    config["tensor-parallel-size"] = stack.tensor_parallel_size
    if stack.gpu_memory_utilization is not None:
        config["gpu-memory-utilization"] = stack.gpu_memory_utilization
    if stack.kv_cache is not None:
        config["kv-cache-memory-bytes"] = stack.kv_cache
    for name, value in options.normalise(stack.args, stack.image.engine).items():
        config.setdefault(name, value)
    return config


def _service(
    stack: Stack,
    settings: StackSettings,
    uuids: tuple[str, ...],
    directory: str,
    port: int,
    listen: str,
    has_secrets: bool,
) -> dict[str, Any]:
    service: dict[str, Any] = {
        "image": stack.image.reference,
        "container_name": stack.container,
        "command": ["--config", CONFIG_PATH],
        "environment": _environment(stack, settings),
    }
    if has_secrets:
        service["env_file"] = [".env"]
    service["ports"] = [f"{bracketed(listen or '0.0.0.0')}:{stack.port}:{port}"]
    service["volumes"] = _volumes(stack, settings, directory)
    service["shm_size"] = settings.shm_size
    service.update(_gpus(stack, settings.gpu_mode, uuids))
    service["healthcheck"] = {
        "test": ["CMD-SHELL", _health_command(port, bool(stack.gpus) and settings.gpu_mode != "none")],
        "interval": "10s",
        "timeout": "5s",
        "retries": 3,
        # Only says how long Docker calls the container "starting"; the first success ends it. The rollout has its own
        # time-out, so that changing that one does not replace the container.
        "start_period": "30m",
    }
    service["restart"] = settings.restart
    service["stop_grace_period"] = "30s"
    service["logging"] = {"driver": "json-file", "options": {"max-size": "50m", "max-file": "3"}}
    return service


def _environment(stack: Stack, settings: StackSettings) -> dict[str, str]:
    environment = {"HF_HOME": HF_HOME, "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    if settings.hub_offline:
        environment["HF_HUB_OFFLINE"] = "1"
    if settings.media_cache:
        environment["VLLM_MEDIA_CACHE"] = MEDIA_CACHE
    environment.update({name: str(value) for name, value in stack.env.items()})
    return environment


def _volumes(stack: Stack, settings: StackSettings, directory: str) -> list[Any]:
    # Compiled code of another image or model is never reused by the engine, so each pair has its own folder and an old
    # one can be deleted without thinking.
    compiled = f"{stack.image.digest.split(':')[-1][:12]}/{re.sub(r'[^A-Za-z0-9._-]', '-', stack.model.name)}"
    volumes: list[Any] = [
        f"{directory}/vllm.yaml:{CONFIG_PATH}:ro",
        f"{settings.hub_cache}:{HF_HOME}",
        f"{settings.engine_cache.rstrip('/')}/{compiled}:{ENGINE_CACHE}",
    ]
    if settings.media_cache:
        inside = stack.env.get("VLLM_MEDIA_CACHE", MEDIA_CACHE)
        volumes.append(f"{settings.media_cache.rstrip('/')}/{stack.name}:{inside}")
    if stack.model.source.startswith("/"):
        # Without create_host_path Docker would make an empty folder, and the engine a misleading message.
        volumes.append(
            {
                "type": "bind",
                "source": stack.model.source,
                "target": stack.model.source,
                "read_only": True,
                "bind": {"create_host_path": False},
            }
        )
    return volumes


def _gpus(stack: Stack, gpu_mode: str, uuids: tuple[str, ...]) -> dict[str, Any]:
    """How the service gets its GPUs, by index or, where the inventory has it, by UUID; never by a count."""
    ids = _device_ids(stack, uuids)
    if gpu_mode == "none" or not ids:
        return {}
    if gpu_mode == "runtime":
        return {"runtime": "nvidia"}
    device: dict[str, Any] = {"driver": "nvidia", "device_ids": ids, "capabilities": ["gpu"]}
    if gpu_mode == "cdi":
        device = {"driver": "cdi", "device_ids": [f"nvidia.com/gpu={name}" for name in ids], "capabilities": ["gpu"]}
    return {"deploy": {"resources": {"reservations": {"devices": [device]}}}}


def _device_ids(stack: Stack, uuids: tuple[str, ...]) -> list[str]:
    return [uuid or str(index) for index, uuid in zip(stack.gpus, uuids)]


def _health_command(port: int, gpus: bool) -> str:
    # An engine may answer for hours after a reload of systemd took its GPUs away, and die of the next start.
    nvml = "if command -v nvidia-smi >/dev/null; then nvidia-smi -L || exit 1; fi; " if gpus else ""
    url = f"http://127.0.0.1:{port}/health"
    return nvml + (
        f"if command -v curl >/dev/null; then curl -fsS -o /dev/null {url}; "
        f"else python3 -c \"import urllib.request; urllib.request.urlopen('{url}', timeout=4)\"; fi"
    )


def bracketed(address: str) -> str:
    """An address as it stands before a port: IPv6 in brackets."""
    return f"[{address}]" if ":" in address and not address.startswith("[") else address


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """A service with somebody's own keys over it; ``render`` says how."""
    merged = dict(base)
    for key, value in over.items():
        if key == "environment":
            ours = _as_environment(merged.get(key, {}))
            ours.update(_as_environment(value or {}))
            merged[key] = ours
        elif value is None:
            merged.pop(key, None)
        elif key == "volumes":
            replaced = {_target(volume) for volume in value}
            merged[key] = [volume for volume in merged.get(key, []) if _target(volume) not in replaced] + list(value)
        elif isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
            merged[key] = merge(merged[key], value)
        else:
            merged[key] = value
    return merged


def _as_environment(value: Any) -> dict[str, str]:
    """Compose allows a mapping or a list of NAME=value."""
    if isinstance(value, Mapping):
        return {str(name): str(text) for name, text in value.items()}
    return dict(([*str(entry).split("=", 1), ""])[:2] for entry in value)


def _source(volume: Any) -> str:
    return str(volume.get("source", "") if isinstance(volume, Mapping) else str(volume).partition(":")[0])


def _target(volume: Any) -> str:
    if isinstance(volume, Mapping):
        return str(volume.get("target", ""))
    parts = str(volume).split(":")
    return parts[1] if len(parts) > 1 else parts[0]


def escaped(value: Any) -> Any:
    """Compose interpolates every value of its file; ``$$`` is how a ``$`` is written there."""
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, Mapping):
        return {key: escaped(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [escaped(inner) for inner in value]
    return value


def env_quoted(value: str) -> str:
    """A value for .env that every Compose since 2.26 reads back unchanged, although it interpolates that file too.

    Single quotes keep everything but a quote and a backslash; double quotes can say those, with ``$`` escaped.
    """
    if not re.search(r"['\\\r\n]", value):
        return f"'{value}'"
    for character, written in (("\\", "\\\\"), ('"', '\\"'), ("$", "\\$"), ("\n", "\\n"), ("\r", "\\r")):
        value = value.replace(character, written)
    return f'"{value}"'


def _digest(service: Mapping[str, Any], config: Mapping[str, Any], secrets: Mapping[str, str]) -> str:
    everything = json.dumps([service, config, secrets], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(everything.encode("utf-8", "surrogatepass")).hexdigest()


def asks(stack: Stack) -> dict[str, Any]:
    """What `questions.select` needs to know about this stack."""
    limits = stack.args.get("limit_mm_per_prompt")
    images = limits.get("image") if isinstance(limits, Mapping) else None
    images = images.get("count") if isinstance(images, Mapping) else images
    return {
        "task": stack.model.task,
        "modalities": list(stack.model.modalities),
        "thinking": stack.model.thinking,
        "tool_parser": bool(stack.args.get("enable_auto_tool_choice") and stack.args.get("tool_call_parser")),
        "structured": bool(stack.args.get("structured_outputs_config")),
        "max_model_len": options.tokens(stack.args.get("max_model_len")),
        "images_per_request": images if isinstance(images, int) else 2,
        "checks": [
            {
                "ask": check.ask,
                "expect": [list(group) for group in check.expect],
                "image": check.image,
                "thinking": check.thinking,
                "max_tokens": check.max_tokens,
            }
            for check in stack.checks
        ],
    }


def contradictions(stack: Stack, settings: StackSettings) -> list[Finding]:
    """What `compose:` says against the stack itself, or two of its settings against each other."""
    place = f"{stack.place}.compose"
    over = merge(dict(settings.extra), stack.compose)
    found: list[Finding] = []

    def add(code: str, key: str, problem: str, remedy: str, severity: str = WARNING) -> None:
        found.append(Finding(code, f"{place}.{key}", problem, remedy, severity, host=stack.host, stack=stack.name))

    for key in OWNED:
        if key in over:
            add("compose_owned", key, f"`{key}` is decided elsewhere.", f"Remove it and {OWNED[key]}.", ERROR)
    if over.get("network_mode") == "host":
        if over.get("ports"):
            problem = "`ports` means nothing with `network_mode: host`, and Compose refuses the pair."
            remedy = f"Remove `ports`; the engine listens on {stack.port}."
            add("compose_ports_host_network", "ports", problem, remedy, ERROR)
        if over.get("networks"):
            problem = "`networks` and `network_mode` exclude each other."
            add("compose_networks_host_network", "networks", problem, "Remove one of the two.", ERROR)
    if over.get("ipc") == "host" and over.get("shm_size"):
        problem = f"`shm_size: {over['shm_size']}` has no effect with `ipc: host`: the host's /dev/shm is used."
        add("compose_shm_host_ipc", "shm_size", problem, "Remove `shm_size`, or remove `ipc: host`.")
    if str(over.get("restart", settings.restart)).startswith("on-failure"):
        problem = "A vLLM engine that dies exits with status 0, so `on-failure` would leave it dead."
        add("compose_restart_on_failure", "restart", problem, "Remove it: the stack's unit starts it again.")
    names = {**stack.env, **_as_environment(over.get("environment") or {})}
    if "CUDA_VISIBLE_DEVICES" in names and settings.gpu_mode != "none":
        found.append(
            Finding(
                "env_cuda_visible_devices",
                f"{stack.place}.env.CUDA_VISIBLE_DEVICES",
                f"The container sees only its own GPUs, numbered from 0; {names['CUDA_VISIBLE_DEVICES']!r} would be "
                "counted among those.",
                "Remove it: `gpus` already chooses the cards.",
                WARNING,
                host=stack.host,
                stack=stack.name,
            )
        )
    return found
