# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands in the way of narrowing, and that it is said. Real iptables: molecule gateway."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters import firewall, live, systemd
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import ports, units
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.ports import Ports

SAVE = "#!/bin/sh\necho you must be root >&2\nexit 4\n"
ONE = Ports((("", 8003),), {"gw": "10.0.0.5"})


@pytest.fixture
def host(tmp_path: Path, monkeypatch: Any) -> Path:
    """It speaks IPv4, has systemd and nothing of ours; ``iptables-save`` refuses."""
    program = tmp_path / "bin" / "iptables-save"
    program.parent.mkdir()
    program.write_text(SAVE)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(units, "UNIT_DIRECTORY", str(tmp_path / "units"))
    monkeypatch.setattr(ports, "FILES", {family: str(tmp_path / f"v{family}") for family in ports.FILES})
    monkeypatch.setattr(firewall, "IPV6_ADDRESSES", str(tmp_path / "if_inet6"))
    monkeypatch.setattr(systemd, "there", lambda: True)
    return tmp_path


def test_what_iptables_refuses_is_an_error_with_its_words(host: Path) -> None:
    with pytest.raises(firewall.FirewallError, match=r"iptables-save -t raw: you must be root\. .*ports_not_closed"):
        firewall.look(ONE)


def test_a_host_on_which_nothing_is_narrowed_is_not_asked(host: Path) -> None:
    seen = firewall.look(Ports())
    assert (seen.differences, seen.families) == ((), ())


def test_a_bare_host_has_no_program_to_ask_and_is_open(host: Path) -> None:
    seen = firewall.look(ONE, bare=True)
    assert [(one.item, one.have) for one in seen.differences] == [
        (ports.NOW, "open to everyone"),
        (ports.AT_BOOT, "(none)"),
    ]
    assert live.Looked({}, {}, (), {}, seen).changed
    assert not live.Looked({}, {}, (), {}, firewall.look(Ports())).changed


@pytest.mark.parametrize(
    ("addresses", "families"),
    [
        ("", (4,)),
        ("00000000000000000000000000000001 01 80 10 80 lo\n", (4,)),
        ("fe800000000000000000000000000001 02 40 20 80 eth0\n", (4, 6)),
    ],
)
def test_ipv6_counts_where_anybody_could_come_by_it(host: Path, addresses: str, families: tuple[int, ...]) -> None:
    (host / "if_inet6").write_text(addresses)
    assert firewall.look(ONE, bare=True).families == families


@pytest.mark.parametrize("name", ["localhost", "no-such-host.invalid"])
def test_a_gateway_whose_name_leads_nowhere_else_is_an_error(host: Path, name: str) -> None:
    with pytest.raises(firewall.FirewallError, match=f"gw comes from {name}, which .*gateway_address_unknown"):
        firewall.look(Ports((("", 8003),), {"gw": name}), bare=True)


def test_the_ports_of_what_left_the_inventory_are_closed_too(host: Path) -> None:
    assert firewall.look(ONE, [("", 8009)], bare=True).says == "8003, 8009 for gw (10.0.0.5) only"
