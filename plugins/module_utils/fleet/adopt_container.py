# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A running container as the Compose service that it could have been made from."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from .compose_reader import Service
from .rendered import LABEL_STACK

COMPOSE_LABEL = "com.docker.compose."
DEFAULT_SHM = 64 * 1024**2
# key of a service -> (part of the inspection, key there, what counts as not said)
PLAIN: Mapping[str, tuple[str, str, tuple[Any, ...]]] = {
    "privileged": ("HostConfig", "Privileged", (False,)),
    "cap_add": ("HostConfig", "CapAdd", ()),
    "cap_drop": ("HostConfig", "CapDrop", ()),
    "security_opt": ("HostConfig", "SecurityOpt", ()),
    "extra_hosts": ("HostConfig", "ExtraHosts", ()),
    "dns": ("HostConfig", "Dns", ()),
    "dns_search": ("HostConfig", "DnsSearch", ()),
    "group_add": ("HostConfig", "GroupAdd", ()),
    "pid": ("HostConfig", "PidMode", ()),
    "uts": ("HostConfig", "UTSMode", ()),
    "userns_mode": ("HostConfig", "UsernsMode", ()),
    "cgroup_parent": ("HostConfig", "CgroupParent", ()),
    "sysctls": ("HostConfig", "Sysctls", ()),
    "read_only": ("HostConfig", "ReadonlyRootfs", (False,)),
    "mem_limit": ("HostConfig", "Memory", (0,)),
    "mem_reservation": ("HostConfig", "MemoryReservation", (0,)),
    "cpu_shares": ("HostConfig", "CpuShares", (0,)),
    "cpuset": ("HostConfig", "CpusetCpus", ()),
    "oom_score_adj": ("HostConfig", "OomScoreAdj", (0,)),
    "init": ("HostConfig", "Init", (False,)),
    "stdin_open": ("Config", "OpenStdin", (False,)),
    "tty": ("Config", "Tty", (False,)),
    "domainname": ("Config", "Domainname", ()),
}
SOURCES = {
    "command": "Config.Cmd",
    "entrypoint": "Config.Entrypoint",
    "image": "Config.Image",
    "environment": "Config.Env",
    "ports": "HostConfig.PortBindings",
    "volumes": "Mounts",
    "gpus": "HostConfig.DeviceRequests",
    "devices": "HostConfig.Devices",
    "runtime": "HostConfig.Runtime",
    "shm_size": "HostConfig.ShmSize",
    "ipc": "HostConfig.IpcMode",
    "network_mode": "HostConfig.NetworkMode",
    "networks": "NetworkSettings.Networks",
    "restart": "HostConfig.RestartPolicy",
    "labels": "Config.Labels",
    "healthcheck": "Config.Healthcheck",
    "logging": "HostConfig.LogConfig",
    "ulimits": "HostConfig.Ulimits",
    "tmpfs": "HostConfig.Tmpfs",
    "cpus": "HostConfig.NanoCpus",
    "user": "Config.User",
    "working_dir": "Config.WorkingDir",
    "hostname": "Config.Hostname",
}


def service(container: Mapping[str, Any], image: Optional[Mapping[str, Any]]) -> Service:
    """What ``docker inspect`` says, less what the image says by itself, in the form ``compose_reader`` gives."""
    config, host = container["Config"], container["HostConfig"]
    its: Mapping[str, Any] = (image or {}).get("Config") or {}
    labels = config.get("Labels") or {}
    name = container["Name"].lstrip("/")
    project = labels.get(f"{COMPOSE_LABEL}project", "")
    definition: dict[str, Any] = {
        "image": config.get("Image", ""),
        "container_name": name,
        "command": config.get("Cmd") or [],
        "environment": _less(_pairs(config.get("Env")), _pairs(its.get("Env"))),
        "ports": _ports(host),
        "volumes": _volumes(container, its),
        "labels": _less(labels, its.get("Labels") or {}),
    }
    if (config.get("Entrypoint") or []) != (its.get("Entrypoint") or []):
        definition["entrypoint"] = config.get("Entrypoint") or []
    for key, (part, inner, silent) in PLAIN.items():
        value = container[part].get(inner)
        if value and value not in silent:
            definition[key] = value
    if "security_opt" in definition:
        # Docker adds this one by itself, with the host's IPC or PIDs.
        definition["security_opt"] = [one for one in definition["security_opt"] if one != "label=disable"]
    definition.update(_gpus(host))
    if host.get("Runtime") not in (None, "", "runc"):
        definition["runtime"] = host["Runtime"]
    if (host.get("ShmSize") or DEFAULT_SHM) != DEFAULT_SHM:
        definition["shm_size"] = host["ShmSize"]
    if str(host.get("IpcMode") or "").startswith(("host", "container:")):
        definition["ipc"] = host["IpcMode"]
    definition.update(_networks(container, project))
    policy = host.get("RestartPolicy") or {}
    if policy.get("Name") not in (None, "", "no"):
        definition["restart"] = policy["Name"]
    if host.get("Devices"):
        definition["devices"] = [f"{one['PathOnHost']}:{one['PathInContainer']}" for one in host["Devices"]]
    if host.get("Ulimits"):
        definition["ulimits"] = {one["Name"]: {"soft": one["Soft"], "hard": one["Hard"]} for one in host["Ulimits"]}
    if host.get("Tmpfs"):
        definition["tmpfs"] = [f"{path}:{how}" if how else path for path, how in host["Tmpfs"].items()]
    if host.get("NanoCpus"):
        definition["cpus"] = host["NanoCpus"] / 1e9
    for key, inner in (("user", "User"), ("working_dir", "WorkingDir")):
        if (config.get(inner) or "") != (its.get(inner) or ""):
            definition[key] = config[inner]
    if (
        config.get("Hostname")
        and not container["Id"].startswith(config["Hostname"])
        and "network_mode" not in definition
    ):
        definition["hostname"] = config["Hostname"]
    if config.get("Healthcheck") and config["Healthcheck"] != its.get("Healthcheck"):
        definition["healthcheck"] = config["Healthcheck"]
    log = host.get("LogConfig") or {}
    if log.get("Config") or log.get("Type") not in (None, "", "json-file"):
        definition["logging"] = log

    where = f"container {name}"
    places: dict[tuple[str, ...], str] = {(): where}
    for key in definition:
        inner = SOURCES.get(key) or (f"{PLAIN[key][0]}.{PLAIN[key][1]}" if key in PLAIN else "")
        places[(key,)] = f"{where}: {inner}" if inner else where
    for variable in definition["environment"]:
        places["environment", variable] = f"{where}: Config.Env {variable}"
    return Service(labels.get(f"{COMPOSE_LABEL}service") or name, definition, places)


def project_of(container: Mapping[str, Any]) -> tuple[str, str, tuple[str, ...]]:
    """(Compose project, its folder, its files) of a container; empty for one that Compose did not make."""
    labels = container["Config"].get("Labels") or {}
    files = tuple(path for path in labels.get(f"{COMPOSE_LABEL}project.config_files", "").split(",") if path)
    return labels.get(f"{COMPOSE_LABEL}project", ""), labels.get(f"{COMPOSE_LABEL}project.working_dir", ""), files


def stack_of(container: Mapping[str, Any]) -> str:
    """The stack that this collection started it as."""
    return str((container["Config"].get("Labels") or {}).get(LABEL_STACK, ""))


def digest_of(repository: str, image: Optional[Mapping[str, Any]]) -> str:
    """The registry's digest of the image that runs, where exactly one is known for this repository."""
    known = {
        str(one).partition("@")[2] for one in (image or {}).get("RepoDigests") or () if _named(one) == _full(repository)
    }
    return known.pop() if len(known) == 1 else ""


def tag_of(repository: str, image: Optional[Mapping[str, Any]]) -> str:
    """The tag that the image has on this host, where there is exactly one of this repository."""
    tags = [str(one) for one in (image or {}).get("RepoTags") or ()]
    known = {tag.rpartition(":")[2] for tag in tags if _full(tag.rpartition(":")[0]) == _full(repository)}
    return known.pop() if len(known) == 1 else ""


def _named(reference: Any) -> str:
    return _full(str(reference).partition("@")[0])


def _full(repository: str) -> str:
    """Docker leaves its own registry out of names."""
    for prefix in ("docker.io/library/", "docker.io/", "index.docker.io/", "library/"):
        if repository.startswith(prefix):
            return repository[len(prefix) :]
    return repository


def _pairs(values: Any) -> dict[str, str]:
    return {name: value for name, _equals, value in (str(entry).partition("=") for entry in values or ())}


def _less(own: Mapping[str, str], images: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in own.items() if images.get(name) != value}


def _ports(host: Mapping[str, Any]) -> list[dict[str, Any]]:
    ports = []
    for inside, bindings in (host.get("PortBindings") or {}).items():
        target, _slash, protocol = inside.partition("/")
        for binding in bindings or ():
            port = {"target": int(target), "protocol": protocol or "tcp"}
            if binding.get("HostPort") not in (None, "", "0"):
                port["published"] = str(binding["HostPort"])
            if binding.get("HostIp"):
                port["host_ip"] = binding["HostIp"]
            ports.append(port)
    return ports


def _volumes(container: Mapping[str, Any], image: Mapping[str, Any]) -> list[dict[str, Any]]:
    volumes = []
    for mount in container.get("Mounts") or ():
        if mount["Type"] == "volume" and mount["Destination"] in (image.get("Volumes") or {}):
            continue  # an anonymous one of the image's own
        source = mount.get("Name") if mount["Type"] == "volume" else mount.get("Source")
        volume = {"type": mount["Type"], "source": source or "", "target": mount["Destination"]}
        if not mount.get("RW", True):
            volume["read_only"] = True
        volumes.append(volume)
    return sorted(volumes, key=lambda one: str(one["target"]))


def _gpus(host: Mapping[str, Any]) -> dict[str, Any]:
    requests = []
    for request in host.get("DeviceRequests") or ():
        one: dict[str, Any] = {"driver": request.get("Driver") or "nvidia"}
        if request.get("DeviceIDs"):
            one["device_ids"] = list(request["DeviceIDs"])
        else:
            one["count"] = request.get("Count", -1)
        one["capabilities"] = [word for group in request.get("Capabilities") or () for word in group] or ["gpu"]
        requests.append(one)
    return {"gpus": requests} if requests else {}


def _networks(container: Mapping[str, Any], project: str) -> dict[str, Any]:
    mode = str(container["HostConfig"].get("NetworkMode") or "")
    if mode in ("host", "none") or mode.startswith("container:"):
        return {"network_mode": mode}
    names = (container.get("NetworkSettings") or {}).get("Networks") or {}
    own = {f"{project}_default", "bridge", "default"}
    others = [name for name in names if name not in own]
    return {"networks": others} if others else {}
