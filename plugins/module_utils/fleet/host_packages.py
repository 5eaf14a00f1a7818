# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packages a host needs, from where, and under whose key. What is there already is not asked for again.

The names are those of Debian 12 and 13, Ubuntu 22.04 and 24.04, and the RHEL 9 family. ``docs/hosts.md`` says which of
them were run and which are written from documentation.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Mapping, Optional, Sequence

from .errors import Finding

AUTO, DISTRIBUTION, DOCKER = "auto", "distribution", "docker"

ENGINE, COMPOSE, SDK, TOOLKIT = "engine", "compose", "sdk", "toolkit"

DOCKER_URL = "https://download.docker.com/linux"
DOCKER_DEB_KEY = "9DC858229FC7DD38854AE2D88D81803C0EBFCD88"
DOCKER_RPM_KEY = "060A61C51B558A7F742B77AAC52FEB6B621E9F35"
NVIDIA_URL = "https://nvidia.github.io/libnvidia-container"
NVIDIA_KEY = "C95B321B61E88C1809C4F759DDCAE044F796ECB0"

_OF_DOCKER = {ENGINE: ("docker-ce", "docker-ce-cli", "containerd.io"), COMPOSE: ("docker-compose-plugin",)}
_SDK_DEB = ("python3-docker",)
_PIP_RPM = ("python3-pip",)  # the RHEL family has no package of the SDK in its own repositories
TOOLKIT_PACKAGES = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)


@dataclass(frozen=True)
class System:
    """A distribution as /etc/os-release and the package manager tell it."""

    id: str = ""
    like: tuple[str, ...] = ()
    version: str = ""
    codename: str = ""
    arch: str = ""  # as the package manager says: amd64, arm64, x86_64, aarch64

    @property
    def label(self) -> str:
        return f"{self.id or 'an unknown system'} {self.version}".strip()

    @property
    def manager(self) -> str:
        """apt, dnf or empty."""
        names = {self.id, *self.like}
        if names & {"debian", "ubuntu"}:
            return "apt"
        return "dnf" if names & {"rhel", "fedora", "centos"} else ""


@dataclass(frozen=True)
class Repository:
    """A package source with the one key that may sign it. ``suites`` ["/"] is a flat apt repository."""

    name: str
    manager: str
    url: str
    suites: tuple[str, ...]
    components: tuple[str, ...]
    key_url: str
    fingerprints: tuple[str, ...]
    # Which of the two signatures of an rpm repository there is: over each package, or over the metadata.
    sign_packages: bool = True


@dataclass(frozen=True)
class Need:
    """What to install. ``packages`` as the manager wants them (``docker-ce=5:28.5*``), ``pin`` without versions."""

    manager: str = ""
    packages: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()
    pin: tuple[str, ...] = ()
    pin_version: str = ""
    repository: Optional[Repository] = None
    findings: tuple[Finding, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "findings": [asdict(finding) for finding in self.findings]}


# Distribution packages, where the distribution has Compose v2. Debian 12 has only Compose 1.
OF_DISTRIBUTION: Mapping[tuple[str, str], Mapping[str, tuple[str, ...]]] = {
    ("debian", "12"): {ENGINE: ("docker.io",), COMPOSE: (), SDK: _SDK_DEB},
    ("debian", "13"): {ENGINE: ("docker.io", "docker-cli"), COMPOSE: ("docker-compose",), SDK: _SDK_DEB},
    ("ubuntu", "22.04"): {ENGINE: ("docker.io",), COMPOSE: ("docker-compose-v2",), SDK: _SDK_DEB},
    ("ubuntu", "24.04"): {ENGINE: ("docker.io",), COMPOSE: ("docker-compose-v2",), SDK: _SDK_DEB},
}


def for_engine(
    system: System,
    missing: Sequence[str],
    *,
    host: str,
    source: str = AUTO,
    version: str = "",
    url: str = "",
    key_url: str = "",
    fingerprints: Sequence[str] = (),
    origin: str = "",
) -> Need:
    """Packages for those of ENGINE, COMPOSE, SDK that are missing.

    ``origin`` says where the engine that is there came from: what is added to it comes from the same place, so that
    nothing replaces it. ``url``, ``key_url`` and ``fingerprints`` name a mirror of Docker's repository.
    """
    if not missing:
        return Need()
    own = OF_DISTRIBUTION.get((system.id, system.version.split(".")[0] if system.id == "debian" else system.version))
    if not system.manager or (system.manager == "apt" and own is None):
        return Need(findings=(_unknown(system, host),))
    # Docker's Compose plugin also works beside a distribution's engine that has none of its own (Debian 12).
    if ENGINE not in missing and origin and not (origin == DISTRIBUTION and own and not own[COMPOSE]):
        source = origin
    if source == AUTO:
        source = DISTRIBUTION if own and own[COMPOSE] else DOCKER
    if source == DISTRIBUTION and (own is None or (COMPOSE in missing and not own[COMPOSE])):
        return Need(findings=(_no_compose(system, host),))

    names: list[str] = []
    for part in (ENGINE, COMPOSE):
        if part in missing:
            names += (own or {})[part] if source == DISTRIBUTION else _OF_DOCKER[part]
    pinned = [name for name in names if version and name in ("docker.io", "docker-ce", "docker-ce-cli")]
    epoch = "5:" if source == DOCKER and system.manager == "apt" else ""
    packages = [_with_version(system, name, f"{epoch}{version}" if name in pinned else "") for name in names]
    if SDK in missing:
        packages += _SDK_DEB if system.manager == "apt" else _PIP_RPM
    return Need(
        manager=system.manager,
        packages=tuple(packages),
        pip=("docker",) if SDK in missing and system.manager == "dnf" else (),
        # Without a repository of its own there is no file to keep the pin beside; the version is installed, not held.
        pin=tuple(pinned) if source == DOCKER else (),
        pin_version=f"{epoch}{version}*" if pinned and source == DOCKER else "",
        repository=_docker(system, url, key_url, fingerprints) if source == DOCKER and names else None,
    )


def for_toolkit(
    system: System,
    *,
    host: str,
    version: str = "",
    url: str = "",
    key_url: str = "",
    fingerprints: Sequence[str] = (),
) -> Need:
    """Packages of the NVIDIA Container Toolkit, which always have one version together."""
    if not system.manager:
        return Need(findings=(_unknown(system, host),))
    base = (url or NVIDIA_URL).rstrip("/")
    names = TOOLKIT_PACKAGES if version else TOOLKIT_PACKAGES[:1]
    kind = "deb" if system.manager == "apt" else "rpm"
    return Need(
        manager=system.manager,
        packages=tuple(_with_version(system, name, version) for name in names),
        pin=TOOLKIT_PACKAGES if version else (),
        pin_version=f"{version}*" if version else "",
        repository=Repository(
            "nvidia-container-toolkit",
            system.manager,
            f"{base}/stable/{kind}/{system.arch}",
            ("/",),
            (),
            key_url or f"{base}/gpgkey",
            tuple(fingerprints) or (NVIDIA_KEY,),
            sign_packages=False,
        ),
    )


def _docker(system: System, url: str, key_url: str, fingerprints: Sequence[str]) -> Repository:
    base = (url or DOCKER_URL).rstrip("/")
    if system.manager == "apt":
        place = f"{base}/{system.id}"
        source, key = place, DOCKER_DEB_KEY
    else:
        place = f"{base}/{'rhel' if system.id == 'rhel' else 'centos'}"
        source, key = f"{place}/{system.version.split('.')[0]}/$basearch/stable", DOCKER_RPM_KEY
    suites, components = ((system.codename,), ("stable",)) if system.manager == "apt" else ((), ())
    return Repository(
        "docker", system.manager, source, suites, components, key_url or f"{place}/gpg", tuple(fingerprints) or (key,)
    )


def _with_version(system: System, name: str, version: str) -> str:
    if not version:
        return name
    return f"{name}={version}*" if system.manager == "apt" else f"{name}-{version}*"


def _unknown(system: System, host: str) -> Finding:
    return Finding(
        "system_not_known",
        host,
        f"{host} is {system.label}, for which no package names are known.",
        "Install Docker Engine, Compose 2 or later and the Docker SDK for Python by other means and set "
        "container_engine_manage: false. Known are Debian 12 and 13, Ubuntu 22.04 and 24.04, and the RHEL 9 family.",
        host=host,
    )


def _no_compose(system: System, host: str) -> Finding:
    return Finding(
        "no_compose_in_distribution",
        f"variables of {host}: container_engine_source",
        f"{system.label} has no Compose 2 among its own packages.",
        "Set container_engine_source: docker, or install a Compose plugin by hand.",
        host=host,
    )
