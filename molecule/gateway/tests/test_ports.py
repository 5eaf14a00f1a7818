# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who reaches an engine's port past the gateway: asked from the controller, the registry and both hosts."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

OVERLAY = "molecule/gateway/two_hosts.yml"
ROOT = Path(__file__).resolve().parents[3]
NAME = os.environ.get("LAB_NAME", "modelfleet")
LAB = json.loads((ROOT / ".cache" / "lab" / NAME / "hosts.json").read_text())
# The one lets the controller in beside the gateway; the other has the gateway as a container of its own.
BESIDE, OWN = (
    f"http://{LAB[host]['address']}:{port}/health" for host, port in (("ana-ml2", 8007), ("ana-docker", 8103))
)
CHAIN = "MODELFLEET-PORTS"


def reaches(url: str, *where: str) -> bool:
    """Whether something answers there; a dropped connection is told by the time it takes."""
    done = subprocess.run(
        [*where, "curl", "-sS", "-o", "/dev/null", "--max-time", "1", url], capture_output=True, check=False
    )
    assert done.returncode in (0, 28), done.stderr  # 28: the time is over
    return done.returncode == 0


def inside(host: str) -> list[str]:
    return ["docker", "exec", f"{NAME}-{host}"]


@pytest.mark.parametrize(
    ("url", "where", "may"),
    [
        (BESIDE, [], True),
        (BESIDE, inside("ana-docker"), True),
        (BESIDE, [*inside("ana-docker"), "docker", "exec", "litellm"], True),
        (BESIDE, inside("registry"), False),
        (OWN, [], False),
        (OWN, inside("ana-ml2"), False),
        (OWN, inside("ana-docker"), True),
    ],
    ids=["named", "gateway", "its container", "a third", "controller", "another host", "itself"],
)
def test_who_reaches_an_engine(url: str, where: list[str], may: bool) -> None:
    if where[-1:] == ["litellm"]:  # which has no curl
        code = f"import urllib.request; print(urllib.request.urlopen({url!r}, timeout=2).status)"
        assert subprocess.check_output([*where, "python3", "-c", code], text=True).strip() == "200"
    else:
        assert reaches(url, *where) is may


def test_what_somebody_opened_by_hand_is_named_and_closed(host, playbook) -> None:
    closed = host.check_output("iptables-save -t raw | grep -v '^[#:]'")
    host.check_output(f"iptables -t raw -F {CHAIN} && systemctl disable engine-ports.modelfleet.service")
    assert reaches(OWN)
    arguments = ("site.yml", "-i", OVERLAY, "-l", "ana-docker", "--tags", "vllm_stack", "--diff")
    check = playbook(*arguments, "--check")
    assert check.recap("ana-docker")["changed"] == 1, check.output
    assert "-engine ports: other rules" in check.output
    assert "+engine ports: 8103 for containers of this host only" in check.output
    assert "-engine ports at boot: disabled" in check.output
    assert reaches(OWN)
    assert playbook(*arguments).recap("ana-docker")["changed"] == 1
    assert not reaches(OWN)
    assert host.check_output("iptables-save -t raw | grep -v '^[#:]'") == closed


def test_who_empties_all_tables_has_them_set_again_by_the_unit(host) -> None:
    """A restart of Docker restarts the unit; here it alone is, because the models should not be loaded again."""
    closed = host.check_output("iptables-save -t raw | grep -v '^[#:]'")
    assert "engine-ports.modelfleet.service" in host.check_output("systemctl show -p ConsistsOf docker.service")
    host.check_output(f"iptables -t raw -F && iptables -t raw -X {CHAIN}")
    assert reaches(OWN)
    host.check_output("systemctl restart engine-ports.modelfleet.service")
    assert not reaches(OWN)
    host.check_output("systemctl restart engine-ports.modelfleet.service")  # and once more, with the rules there
    assert host.check_output("iptables-save -t raw | grep -v '^[#:]'") == closed
