# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Package names and repositories of every system the roles know."""

from __future__ import annotations

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import package_files
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.host_packages import (
    COMPOSE,
    DOCKER_DEB_KEY,
    DOCKER_RPM_KEY,
    ENGINE,
    NVIDIA_KEY,
    SDK,
    System,
    for_engine,
    for_toolkit,
)

ALL = (ENGINE, COMPOSE, SDK)
BOOKWORM = System("debian", (), "12", "bookworm", "amd64")
TRIXIE = System("debian", (), "13", "trixie", "arm64")
JAMMY = System("ubuntu", ("debian",), "22.04", "jammy", "amd64")
NOBLE = System("ubuntu", ("debian",), "24.04", "noble", "amd64")
RHEL = System("rhel", ("fedora",), "9.6", "", "x86_64")
ROCKY = System("rocky", ("rhel", "centos", "fedora"), "9.5", "", "x86_64")
CE = "docker-ce docker-ce-cli containerd.io docker-compose-plugin"


@pytest.mark.parametrize(
    ("system", "source", "packages", "pip", "url"),
    [
        (TRIXIE, "auto", "docker.io docker-cli docker-compose python3-docker", "", ""),
        (JAMMY, "auto", "docker.io docker-compose-v2 python3-docker", "", ""),
        (NOBLE, "auto", "docker.io docker-compose-v2 python3-docker", "", ""),
        (NOBLE, "docker", f"{CE} python3-docker", "", "https://download.docker.com/linux/ubuntu"),
        (BOOKWORM, "auto", f"{CE} python3-docker", "", "https://download.docker.com/linux/debian"),
        (RHEL, "auto", f"{CE} python3-pip", "docker", "https://download.docker.com/linux/rhel/9/$basearch/stable"),
        (ROCKY, "auto", f"{CE} python3-pip", "docker", "https://download.docker.com/linux/centos/9/$basearch/stable"),
    ],
)
def test_a_bare_host(system, source, packages, pip, url):
    need = for_engine(system, ALL, host="ana", source=source)
    assert not need.findings
    assert " ".join(need.packages) == packages
    assert " ".join(need.pip) == pip
    assert (need.repository.url if need.repository else "") == url
    if need.repository:
        assert need.repository.fingerprints == (DOCKER_RPM_KEY if need.manager == "dnf" else DOCKER_DEB_KEY,)


@pytest.mark.parametrize(
    ("system", "missing", "origin", "source", "packages"),
    [
        pytest.param(TRIXIE, (), "distribution", "docker", "", id="nothing is missing"),
        pytest.param(TRIXIE, (SDK,), "distribution", "auto", "python3-docker", id="only the SDK"),
        pytest.param(TRIXIE, (COMPOSE,), "distribution", "docker", "docker-compose", id="beside docker.io"),
        pytest.param(BOOKWORM, (COMPOSE,), "distribution", "auto", "docker-compose-plugin", id="beside Debian 12's"),
        pytest.param(NOBLE, (COMPOSE,), "docker", "auto", "docker-compose-plugin", id="beside docker-ce"),
    ],
)
def test_what_is_there_is_left_alone(system, missing, origin, source, packages):
    assert " ".join(for_engine(system, missing, host="ana", source=source, origin=origin).packages) == packages


@pytest.mark.parametrize(
    ("system", "source", "version", "engine", "pin"),
    [
        (TRIXIE, "distribution", "26.1", "docker.io=26.1*", ""),
        (TRIXIE, "docker", "28.5", "docker-ce=5:28.5*", "5:28.5*"),
        (RHEL, "auto", "28.5", "docker-ce-28.5*", "28.5*"),
    ],
)
def test_a_version(system, source, version, engine, pin):
    need = for_engine(system, ALL, host="ana", source=source, version=version)
    assert need.packages[0] == engine
    assert need.pin_version == pin


@pytest.mark.parametrize(
    ("system", "source", "code"),
    [
        (System("debian", (), "11", "bullseye", "amd64"), "auto", "system_not_known"),
        (System("ubuntu", ("debian",), "20.04", "focal", "amd64"), "docker", "system_not_known"),
        (System("arch", (), "", "", "x86_64"), "auto", "system_not_known"),
        (System(), "auto", "system_not_known"),
        (BOOKWORM, "distribution", "no_compose_in_distribution"),
        (RHEL, "distribution", "no_compose_in_distribution"),
    ],
)
def test_refusals(system, source, code):
    need = for_engine(system, ALL, host="ana", source=source)
    assert [finding.code for finding in need.findings] == [code]
    assert not need.packages


def test_a_mirror():
    need = for_engine(NOBLE, ALL, host="ana", source="docker", url="https://mirror/docker/", fingerprints=["AB"])
    assert need.repository.url == "https://mirror/docker/ubuntu"
    assert need.repository.key_url == "https://mirror/docker/ubuntu/gpg"
    assert need.repository.fingerprints == ("AB",)


@pytest.mark.parametrize(
    ("system", "version", "first", "url"),
    [
        (TRIXIE, "", "nvidia-container-toolkit", "https://nvidia.github.io/libnvidia-container/stable/deb/arm64"),
        (
            NOBLE,
            "1.18.1",
            "nvidia-container-toolkit=1.18.1*",
            "https://nvidia.github.io/libnvidia-container/stable/deb/amd64",
        ),
        (
            RHEL,
            "1.18.1",
            "nvidia-container-toolkit-1.18.1*",
            "https://nvidia.github.io/libnvidia-container/stable/rpm/x86_64",
        ),
    ],
)
def test_toolkit(system, version, first, url):
    need = for_toolkit(system, host="ana", version=version)
    assert need.packages[0] == first
    # With a version all four have it: apt alone would take the newest of the others.
    assert len(need.packages) == (4 if version else 1)
    assert (need.repository.url, need.repository.fingerprints) == (url, (NVIDIA_KEY,))


def test_files_for_apt():
    files = package_files.rendered(
        "apt", "docker", "https://m/ubuntu", ["noble"], ["stable"], "KEY", True, ["docker-ce"], "5:28*"
    )
    assert list(files) == [
        "/etc/apt/keyrings/docker.asc",
        "/etc/apt/sources.list.d/docker.sources",
        "/etc/apt/preferences.d/docker",
    ]
    source = dict(line.split(": ", 1) for line in files["/etc/apt/sources.list.d/docker.sources"].splitlines()[1:])
    assert source == {
        "Types": "deb",
        "URIs": "https://m/ubuntu",
        "Suites": "noble",
        "Components": "stable",
        "Signed-By": "/etc/apt/keyrings/docker.asc",
    }
    assert "Pin: version 5:28*\n" in files["/etc/apt/preferences.d/docker"]


@pytest.mark.parametrize(("sign_packages", "gpgcheck", "repo_gpgcheck"), [(True, 1, 0), (False, 0, 1)])
def test_files_for_dnf(sign_packages, gpgcheck, repo_gpgcheck):
    files = package_files.rendered("dnf", "docker", "https://m/9", [], [], "KEY", sign_packages, [], "")
    text = files["/etc/yum.repos.d/docker.repo"]
    assert f"\ngpgcheck={gpgcheck}\nrepo_gpgcheck={repo_gpgcheck}\n" in text
    assert files["/etc/pki/rpm-gpg/RPM-GPG-KEY-docker"] == "KEY"
