# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of this host that say who may reach its engines, now and after a reboot."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
from dataclasses import dataclass, replace
from typing import Iterable, Mapping, Sequence

from ..fleet import ports, units
from ..fleet.drift import Difference
from ..fleet.ports import Live, Ports
from . import command, files, systemd

IPV6_ADDRESSES = "/proc/net/if_inet6"
LOOPBACK6 = "0" * 31 + "1"


class FirewallError(Exception):
    """Who may reach the engines cannot be seen or set; the message says why and what to do."""


@dataclass(frozen=True)
class Seen:
    """Who should reach the engines of this host, and what of it is not so."""

    wanted: Ports
    numbers: Mapping[str, Sequence[str]]
    families: tuple[int, ...]  # of the Internet Protocol that the host speaks and that are to be set
    differences: tuple[Difference, ...]

    @property
    def chains(self) -> dict[int, tuple[str, ...]]:
        wanted = ports.rules(self.wanted, self.numbers)
        return {family: chain for family, chain in wanted.items() if family in self.families}

    @property
    def says(self) -> str:
        return ports.who(self.wanted, self.numbers) if self.chains else ports.EVERYONE


def look(wanted: Ports, more: Iterable[tuple[str, int]] = (), *, bare: bool = False) -> Seen:
    """Reads only. ``more``: ports of engines that the inventory does not have. ``bare``: no program is there yet."""
    wanted = replace(wanted, engines=tuple(sorted({*wanted.engines, *more})))
    numbers = {host: _numbers(host, address) for host, address in wanted.gateways.items()}
    spoken = (4, 6) if _speaks_ipv6() else (4,)
    unit = systemd.read(_unit_path()) or ""
    kept = {family: text for family, path in ports.FILES.items() for text in [systemd.read(path)] if text is not None}
    asked = tuple(family for family in spoken if family in ports.rules(wanted, numbers) or (kept or unit))
    live = Live(
        saved={family: "" if bare else _saved(family) for family in asked},
        files=kept,
        unit=unit,
        enabled=all(os.path.islink(link) for link in systemd.links(ports.UNIT)),
    )
    found = ports.compare(wanted, numbers, live, asked, boots=systemd.there())
    return Seen(wanted, numbers, asked, tuple(found))


def apply(seen: Seen) -> None:
    """The rules at once, then what sets them at boot. An engine must not be started before."""
    chains = seen.chains
    for family in seen.families:
        program = ports.PROGRAMS[family]
        if family in chains:
            files.write(ports.FILES[family], ports.file_text(chains[family]))
            _run([f"{program}-restore", "--wait", "--noflush", ports.FILES[family]])
            if not _try(ports.jump_words(program, "-C")).ok:
                _run(ports.jump_words(program, "-I"))
            continue
        while _try(ports.jump_words(program, "-D")).ok:
            pass
        for action in ("-F", "-X"):
            _try([program, "--wait", "-t", "raw", action, ports.CHAIN])  # it may be gone already
    for family in set(ports.FILES) - set(chains):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(ports.FILES[family])
    if not systemd.there():
        return
    if chains:
        systemd.install(ports.UNIT, ports.unit_text(chains))
        systemd.start(ports.UNIT)
    else:
        systemd.uninstall(ports.UNIT)


def _unit_path() -> str:
    return f"{units.UNIT_DIRECTORY}/{ports.UNIT}"


def _speaks_ipv6() -> bool:
    """Whether anybody could reach the host by it. A kernel without it has no such tables either."""
    lines = (systemd.read(IPV6_ADDRESSES) or "").splitlines()
    return any(not line.startswith(LOOPBACK6) for line in lines)


def _numbers(host: str, address: str) -> list[str]:
    """What the name of a gateway leads to from here, which is where its requests arrive."""
    try:
        return [str(ipaddress.ip_address(address))]
    except ValueError:
        pass
    why = "leads back to this host"
    found: set[str] = set()
    try:
        answers = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)
        found = {str(answer[4][0]).partition("%")[0] for answer in answers}
        found = {number for number in found if not ipaddress.ip_address(number).is_loopback}
    except OSError as error:
        why = f"is not known here ({error.strerror or error})"
    if not found:
        raise FirewallError(
            f"who may reach the engines is not known: the gateway {host} comes from {address}, which {why}. Write its "
            f"address into its fleet_gateway, as addresses: {{{host}: 10.0.0.5}}, or {ports.OPTION}: [any] for a host "
            "whose engines everybody may reach. [gateway_address_unknown]"
        )
    return sorted(found)


def _saved(family: int) -> str:
    return _run([f"{ports.PROGRAMS[family]}-save", "-t", "raw"])


def _run(words: Sequence[str]) -> str:
    done = _try(words)
    if not done.ok:
        why = done.errors.strip() or f"status {done.status}"
        raise FirewallError(
            f"who may reach the engines cannot be looked at or set: {' '.join(words[:3])}: {why}. Without iptables and "
            f"its table raw, write {ports.OPTION}: [any], and keep others away by another firewall. [ports_not_closed]"
        )
    return done.output


def _try(words: Sequence[str]) -> command.Outcome:
    # Ansible's PATH over ssh may lack sbin.
    path = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"
    return command.run(words, environment={**os.environ, "PATH": path})
