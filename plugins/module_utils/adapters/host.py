# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looks at a host (its system, its container engine, its NVIDIA side) and acts on the Docker daemon."""

from __future__ import annotations

import contextlib
import glob
import importlib.util
import json
import os
import re
import shutil
import signal
import tempfile
from dataclasses import replace
from typing import Any, Callable, Mapping, Optional, Sequence

from ..fleet import daemon_config
from ..fleet.host_check import (
    BOOT_COMMANDS,
    BOOT_UNIT,
    CDI_REFRESH,
    FABRIC_MANAGER,
    PERSISTENCED,
    EngineFacts,
    NvidiaFacts,
)
from ..fleet.host_packages import DISTRIBUTION, DOCKER, System
from ..fleet.rendered import LABEL_STACK
from ..fleet.units import UNIT_DIRECTORY
from . import nvidia_smi
from .command import run

RESTART_SECONDS = 300  # stopping the daemon waits for every container's own end
UNITS = (PERSISTENCED, FABRIC_MANAGER, CDI_REFRESH)
DAEMON_JSON = "/etc/docker/daemon.json"
CDI_DIRS = ("/etc/cdi", "/var/run/cdi")
# Written when a restart was held back for something that no file shows; void once the daemon is younger than it.
RESTART_MARKER = "/run/modelfleet/docker-restart-needed"


def system(path: str = "/etc/os-release") -> System:
    fields = dict(re.findall(r"^(\w+)=[\"']?([^\"'\n]*)[\"']?$", _text(path), re.MULTILINE))
    found = System(
        fields.get("ID", ""),
        tuple(fields.get("ID_LIKE", "").split()),
        fields.get("VERSION_ID", ""),
        fields.get("VERSION_CODENAME", ""),
    )
    arch = run(["dpkg", "--print-architecture"])[1].strip() if found.manager == "apt" else os.uname().machine
    return System(found.id, found.like, found.version, found.codename, arch)


def docker_info() -> tuple[dict[str, Any], str]:
    """What the daemon and the docker command say of themselves; and why the daemon does not answer, or nothing."""
    status, output, complaint = run(["docker", "info", "--format", "{{json .}}"])
    info: dict[str, Any] = {}
    with contextlib.suppress(ValueError):
        info = json.loads(output)
    if status == 0 and info.get("ServerVersion"):
        return info, ""
    errors = "; ".join(info.get("ServerErrors") or ()) or " ".join(complaint.split())
    return info, errors[:300] or f"docker info ended with status {status}"


def engine() -> EngineFacts:
    there = bool(_which("dockerd"))
    info, error = docker_info()
    plugins = (info.get("ClientInfo") or {}).get("Plugins") or ()
    compose = next((str(plugin.get("Version", "")) for plugin in plugins if plugin.get("Name") == "compose"), "")
    found = EngineFacts(
        there=there,
        answers=not error,
        error=error,
        version=info.get("ServerVersion", ""),
        compose=compose,
        sdk="there" if importlib.util.find_spec("docker") else "",
        cgroup_driver=info.get("CgroupDriver", ""),
        runtimes=tuple(sorted(info.get("Runtimes") or ())),
        cdi_dirs=tuple(info.get("CDISpecDirs") or ()),
        live_restore=bool(info.get("LiveRestoreEnabled")),
        running=int(info.get("ContainersRunning") or 0),
    )
    if found.missing and there:
        found = replace(found, origin=_origin())
    return found


def ours_running() -> dict[str, str]:
    """Running containers that carry our label -> their stack, the one started last first."""
    listing = ["--filter", f"label={LABEL_STACK}", "--format", f'{{{{.Names}}}} {{{{.Label "{LABEL_STACK}"}}}}']
    return dict(line.split(" ", 1) for line in run(["docker", "ps", *listing])[1].splitlines())


def nvidia(cdi_dirs: Sequence[str] = CDI_DIRS) -> NvidiaFacts:
    report = nvidia_smi.look()
    programs = tuple(program for program, _argv in BOOT_COMMANDS if _which(program))
    devices, stale = _cdi(cdi_dirs or CDI_DIRS)
    module = re.search(r"Kernel Module\D*?([\d.]+)", _text("/proc/driver/nvidia/version"))
    toolkit = re.search(r"version (\S+)", run(["nvidia-ctk", "--version"])[1]) if "nvidia-ctk" in programs else None
    return NvidiaFacts(
        cards=report.cards,
        trouble=report.trouble,
        cuda_version=report.cuda_version,
        module_version=module.group(1) if module else "",
        hook=bool(_which("nvidia-container-runtime-hook")),
        runtime=bool(_which("nvidia-container-runtime")),
        toolkit=toolkit.group(1) if toolkit else "",
        programs=programs,
        cdi_devices=devices,
        cdi_stale=stale,
        boot_unit=_text(os.path.join(UNIT_DIRECTORY, BOOT_UNIT)),
        char_links=bool(glob.glob("/dev/char/195:*")),
        nvswitch=bool(glob.glob("/dev/nvidia-nvswitch[0-9]*")),
        units=unit_states(UNITS),
    )


def unit_states(units: Sequence[str]) -> dict[str, str]:
    """Unit -> ActiveState, of those that systemd knows."""
    said = run(["systemctl", "show", "--property=Id,LoadState,ActiveState", *units])[1]
    states = {}
    for block in said.split("\n\n"):
        fields = dict(line.partition("=")[::2] for line in block.splitlines())
        if fields.get("LoadState") == "loaded":
            states[fields["Id"]] = fields["ActiveState"]
    return states


def cuda_requirements(images: Sequence[str]) -> dict[str, str]:
    """Image -> its NVIDIA_REQUIRE_CUDA, of those images that are on this host and have one."""
    if not images:
        return {}
    # Exits with a failure when one is not here, and prints the others all the same.
    said = run(["docker", "image", "inspect", "--format", "{{json .RepoDigests}} {{json .Config.Env}}", *images])[1]
    found = {}
    for line in said.splitlines():
        with contextlib.suppress(ValueError):
            decoder = json.JSONDecoder()
            digests, end = decoder.raw_decode(line)
            variables = dict(entry.partition("=")[::2] for entry in json.loads(line[end:]) or ())
            name = next((image for image in images if image in (digests or ())), "")
            if name and "NVIDIA_REQUIRE_CUDA" in variables and "NVIDIA_DISABLE_REQUIRE" not in variables:
                found[name] = variables["NVIDIA_REQUIRE_CUDA"]
    return found


# ---------------------------------------------------------------- the daemon


def daemon() -> Optional[tuple[int, list[str]]]:
    """Process id and arguments of the running dockerd."""
    with contextlib.suppress(ValueError, OSError):
        pid = int(_text("/var/run/docker.pid"))
        with open(f"/proc/{pid}/cmdline", "rb") as stream:
            argv = stream.read().decode("utf-8", "replace").rstrip("\0").split("\0")
        if os.path.basename(argv[0]) == "dockerd":
            return pid, argv
    return None


def validate(content: str) -> str:
    """What dockerd says against this daemon.json; empty when it accepts it, or cannot be asked (before 23.0)."""
    if not _which("dockerd"):
        return ""
    with tempfile.TemporaryDirectory(prefix="modelfleet-") as folder:
        path = os.path.join(folder, "daemon.json")
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(content)
        status, output, complaint = run(["dockerd", "--validate", "--config-file", path])
    said = " ".join((output + complaint).split())
    if status == 0 or "unknown flag" in said:
        return ""
    return said.replace(path, "daemon.json")[:500]


def reload() -> str:
    """Let the daemon read its file again; what went wrong, or nothing. Containers do not notice."""
    status, _output, complaint = run(["systemctl", "reload", "docker"])
    running = daemon()
    if status and running:  # no systemd here, or a unit without ExecReload
        os.kill(running[0], signal.SIGHUP)
        return ""
    return complaint.strip() if status else ""


def restart() -> str:
    """Restart the daemon; what went wrong, or nothing."""
    # A unit that failed a moment ago may have used up its starts.
    run(["systemctl", "reset-failed", "docker"])
    status, _output, complaint = run(["systemctl", "restart", "docker"], RESTART_SECONDS)
    if status == 0:
        return ""
    journal = run(["journalctl", "-u", "docker", "-n", "20", "-o", "cat", "--no-pager"])[1].strip()
    return f"{complaint.strip()}\n{journal}"


def wait_until(holds: Callable[[], bool], seconds: float, sleep: Callable[[float], None]) -> bool:
    for _attempt in range(max(1, int(seconds / 0.25))):
        if holds():
            return True
        sleep(0.25)
    return holds()


def configured(wanted: Mapping[str, Any], runtimes: Sequence[str]) -> bool:
    """Whether daemon.json has all of ``wanted`` and the daemon, which knows ``runtimes``, has taken it if it runs."""
    return daemon_config.settled(_text(DAEMON_JSON), wanted, runtimes if daemon() else None, restart_wanted())


def restart_wanted() -> str:
    """Why a restart is waited for since an earlier run; empty when none is, or the daemon was started since."""
    running = daemon()
    with contextlib.suppress(OSError):
        written = os.stat(RESTART_MARKER).st_mtime
        if running and _started(running[0]) < written:
            return _text(RESTART_MARKER).strip()
    return ""


def want_restart(reason: str) -> None:
    os.makedirs(os.path.dirname(RESTART_MARKER), mode=0o755, exist_ok=True)
    with open(RESTART_MARKER, "w", encoding="utf-8") as stream:
        stream.write(reason + "\n")


def _started(pid: int) -> float:
    """Seconds since the epoch at which the process started."""
    ticks = int(_text(f"/proc/{pid}/stat").rpartition(")")[2].split()[19])
    boot = re.search(r"^btime (\d+)", _text("/proc/stat"), re.MULTILINE)
    return int(boot.group(1) if boot else 0) + ticks / os.sysconf("SC_CLK_TCK")


def _origin() -> str:
    path = os.path.realpath(_which("dockerd"))
    owner = run(["dpkg", "-S", path])[1] or run(["rpm", "-qf", path])[1]
    if "docker-ce" in owner:
        return DOCKER
    return DISTRIBUTION if owner else ""


def _cdi(directories: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Device names of all nvidia.com/gpu specifications, and a host path one of them mounts that is gone.

    Read by patterns: a target has no YAML library, and the files are YAML or JSON.
    """
    names: dict[str, None] = {}
    stale = ""
    # A specification in a later directory hides the devices of the same name in an earlier one.
    for directory in reversed(directories):
        hidden = set(names)
        for path in sorted(glob.glob(os.path.join(directory, "*"))):
            text = _text(path) if path.endswith((".yaml", ".yml", ".json")) else ""
            if not re.search(r"\"?kind\"?:\s*\"?nvidia\.com/gpu\b", text):
                continue
            found = re.findall(r"\"?\bname\"?:\s*[\"']?([^\"'\s,}]+)", text)
            names.update(dict.fromkeys(found))
            if set(found) <= hidden:
                continue
            for mounted in re.findall(r"\"?hostPath\"?:\s*\"?([^\"\s,]+)", text):
                if not os.path.exists(mounted):
                    stale = stale or mounted
    return tuple(names), stale


def _which(program: str) -> str:
    # Ansible's PATH over ssh may lack sbin.
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin") or ""


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


def image_of_ours(images: Sequence[str]) -> str:
    """An image that is on this host: of a container of ours, or the first of ``images``."""
    of_ours = run(["docker", "ps", "-a", "--filter", f"label={LABEL_STACK}", "--format", "{{.Image}}"])[1].split()
    for image in (*of_ours, *images):
        if run(["docker", "image", "inspect", "--format", "{{.Id}}", image])[0] == 0:
            return image
    return ""


def cards_in_container(image: str, options: Sequence[str]) -> tuple[int, str]:
    """Exit status and words of `nvidia-smi -L` in a container of this image that lives only for it."""
    status, output, complaint = run(
        ["docker", "run", "--rm", "--network=none", "--pull=never", "--entrypoint=nvidia-smi", *options, image, "-L"]
    )
    return status, output + complaint
