# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may reach the engines' ports of a host, as rules of iptables, and what of them is not so.

Docker sends a packet for a published port on its way before ufw or firewalld see it. Only the table ``raw`` comes
earlier; Docker leaves alone what others have there, and what listens on the host itself passes it too. We have one
chain in it, which a packet that opens a connection to the host goes through. Connections that are open go on.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import asdict, dataclass, field
from typing import Any, Iterable, Mapping, Optional, Sequence

from .drift import ABSENT, Difference, live_ports, wanted_ports
from .errors import Finding
from .rendered import RenderedStack

ANY = "any"
OPTION = "vllm_stack_reach"
CHAIN = "MODELFLEET-PORTS"
JUMP = f"-A PREROUTING -p tcp -m tcp --tcp-flags SYN,RST,ACK SYN -m addrtype --dst-type LOCAL -j {CHAIN}"
PROGRAMS = {4: "iptables", 6: "ip6tables"}
BRIDGES = ("docker0", "br-+")  # Docker's own name for a bridge, and for those of Compose's networks
UNIT = "engine-ports.modelfleet.service"  # modelfleet-NAME.service is the stack NAME's
FILES = {4: "/etc/modelfleet/engine-ports.v4", 6: "/etc/modelfleet/engine-ports.v6"}
# Services that empty all tables when they stop or start. After them, and again with each of them.
EMPTIED_BY = "nftables iptables ip6tables netfilter-persistent firewalld ufw"

SET = "set"  # what a run does about a difference
NOW, AT_BOOT = "engine ports", "engine ports at boot"
EVERYONE = "open to everyone"


@dataclass(frozen=True)
class Ports:
    """What the controller knows: the ports, and who may reach them. Nobody named: everybody may."""

    engines: tuple[tuple[str, int], ...] = ()  # address (empty: every one) and port
    gateways: Mapping[str, str] = field(default_factory=dict)  # host -> its address, or a name that leads to it
    networks: tuple[str, ...] = ()
    containers: bool = False  # a gateway on the host itself comes from a bridge of Docker's

    @property
    def narrow(self) -> bool:
        return bool(self.gateways or self.networks or self.containers)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Ports:
        return cls(
            tuple((str(address), int(port)) for address, port in data["engines"]),
            dict(data["gateways"]),
            tuple(data["networks"]),
            bool(data["containers"]),
        )


@dataclass(frozen=True)
class Live:
    """What the host has. By family: the text of ``iptables-save``, and of the file that is read at boot."""

    saved: Mapping[int, str] = field(default_factory=dict)
    files: Mapping[int, str] = field(default_factory=dict)
    unit: str = ""
    enabled: bool = False


def check(reach: Any, host: str) -> list[Finding]:
    """What is wrong with the option; one finding for each value."""

    def found(place: str, problem: str, remedy: str) -> Finding:
        return Finding("reach_malformed", f"variables of {host}: {place}", problem, remedy, host=host)

    if not isinstance(reach, (list, tuple)):
        remedy = "Write a list of addresses and networks, such as [10.0.0.5, 10.1.0.0/16], or [any]."
        return [found(OPTION, f'is "{reach}", not a list.', remedy)]
    findings = []
    for position, value in enumerate(reach):
        place, text = f"{OPTION}[{position}]", str(value)
        if text == ANY:
            if len(reach) > 1:
                findings.append(found(place, "is any, beside others.", "Write [any] alone, or leave it out."))
            continue
        try:
            ipaddress.ip_network(text)
        except ValueError:
            try:
                remedy = f"The network is {ipaddress.ip_network(text, strict=False)}, the address alone has no slash."
            except ValueError:
                remedy = "Write an address or a network in numbers, such as 10.0.0.5 or 10.1.0.0/16, or any."
            findings.append(found(place, f'is "{text}", which is neither an address nor a network.', remedy))
    return findings


def gateway_address(host: str, addresses: Mapping[str, str], ansible_host: str) -> str:
    """Where a gateway's host comes from, as the inventory has it; an address, or a name that the other host knows."""
    named = addresses.get(host, "")
    if named:
        return str(named).strip("[]")
    # Over a tunnel or a forwarded port the controller's way to it says nothing about others' ways.
    return host if ansible_host in ("", "localhost") or _loopback(ansible_host) else ansible_host


def make(stacks: Iterable[RenderedStack], host: str, gateways: Mapping[str, str], reach: Sequence[str]) -> Ports:
    """``gateways``: host -> ``gateway_address``. Without any, and with no ``reach``, nobody could reach an engine."""
    if ANY in reach or not (gateways or reach):
        return Ports()
    return Ports(
        tuple(sorted({engine for stack in stacks for engine in _of_stack(stack)})),
        {name: address for name, address in gateways.items() if name != host},
        tuple(str(ipaddress.ip_network(text)) for text in reach),
        host in gateways,
    )


def _of_stack(stack: RenderedStack) -> list[tuple[str, int]]:
    if stack.service_definition.get("network_mode") == "host":
        address, _colon, port = stack.url.rpartition("/")[2].rpartition(":")
        # The address by which the host asks it: of every address, 127.0.0.1.
        return [("" if _loopback(address.strip("[]")) else address.strip("[]"), int(port))]
    return _published(wanted_ports(stack.service_definition))


def of_container(container: Mapping[str, Any]) -> list[tuple[str, int]]:
    """The ports of a container that no stack of the inventory knows."""
    return _published(live_ports(container["HostConfig"]))


def _published(ports: Iterable[str]) -> list[tuple[str, int]]:
    found = []
    for text in ports:
        match = re.fullmatch(r"(.*):(\d+)->\d+/tcp", text)
        if match and not _loopback(match[1]):
            # What Compose fills in from a variable may be any address.
            found.append((match[1] if _is_number(match[1]) else "", int(match[2])))
    return found


def _is_number(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _loopback(text: str) -> bool:
    return _is_number(text) and ipaddress.ip_address(text).is_loopback


def rules(ports: Ports, numbers: Mapping[str, Sequence[str]]) -> dict[int, tuple[str, ...]]:
    """The chain, by family, as iptables-save writes it; a family without a port is left out.

    ``numbers``: the addresses that ``ports.gateways`` lead to.
    """
    sources = {ipaddress.ip_network(text) for text in ports.networks}
    sources |= {ipaddress.ip_network(number) for each in numbers.values() for number in each}
    found = {}
    for family in PROGRAMS:
        closed = []
        for address, port in ports.engines:
            if address and ipaddress.ip_address(address).version != family:
                continue
            where = f"-d {ipaddress.ip_network(address)} " if address else ""
            closed.append(f"-A {CHAIN} {where}-p tcp -m tcp --dport {port} -j DROP")
        inside = BRIDGES if ports.containers else ()
        passes = [f"-i {name}" for name in ("lo", *inside)]
        own = [one for one in sources if one.version == family]
        passes += [f"-s {one}" for one in sorted(own, key=lambda one: (int(one.network_address), one.prefixlen))]
        if closed and ports.narrow:
            found[family] = (*(f"-A {CHAIN} {which} -j RETURN" for which in passes), *closed)
    return found


def file_text(chain: Sequence[str]) -> str:
    """For iptables-restore, which empties a chain that is named in it and fills it again in one step."""
    head = "# Written by modelfleet.inference; edit the inventory instead."
    return "\n".join([head, "*raw", f":{CHAIN} - [0:0]", *chain, "COMMIT", ""])


def jump_words(program: str, action: str) -> list[str]:
    """The command for the rule that leads to our chain; ``action`` is -C (is it there), -I or -D."""
    return [program, "--wait", "-t", "raw", action, *JUMP.split()[1:]]


def unit_text(families: Iterable[int]) -> str:
    """Sets the rules before Docker starts. Docker's restart sets them anew, for whoever has emptied all tables."""
    others = " ".join(f"{name}.service" for name in EMPTIED_BY.split())
    lines = []
    for family in sorted(families):
        program = PROGRAMS[family]
        there, make_it = (" ".join(jump_words(program, action)) for action in ("-C", "-I"))
        lines.append(f"ExecStart=/bin/sh -c '{program}-restore --wait --noflush {FILES[family]}'")
        lines.append(f"ExecStart=/bin/sh -c '{there} 2>/dev/null || {make_it}'")
    commands = "\n".join(lines)
    return f"""# Written by modelfleet.inference; edit the inventory instead.
[Unit]
Description=Who may reach the ports of the model servers
Before=docker.service
After={others}
PartOf=docker.service {others}

[Service]
Type=oneshot
RemainAfterExit=yes
{commands}

[Install]
WantedBy=multi-user.target docker.service
"""


def compare(
    ports: Ports, numbers: Mapping[str, Sequence[str]], live: Live, families: Iterable[int], *, boots: bool = True
) -> list[Difference]:
    """``families``: those that the host has. ``boots``: it has systemd, which sets the rules again."""
    wanted = {family: chain for family, chain in rules(ports, numbers).items() if family in families}
    found = []
    want = who(ports, numbers) if wanted else EVERYONE
    now = [_now(wanted.get(family), live.saved[family]) for family in live.saved]
    if any(now):
        found.append(Difference("", NOW, want, next(filter(None, now)), SET))
    kept = {family: file_text(chain) for family, chain in wanted.items()}
    if not wanted:
        if live.unit or live.files:
            found.append(Difference("", AT_BOOT, ABSENT, "present", SET))
    elif not boots:
        pass
    elif not live.unit:
        found.append(Difference("", AT_BOOT, f"set by {UNIT}", ABSENT, SET))
    elif kept != live.files or live.unit != unit_text(kept):
        found.append(Difference("", AT_BOOT, "as rendered", "differs", SET))
    elif not live.enabled:
        found.append(Difference("", AT_BOOT, f"{UNIT} enabled", "disabled", SET))
    return found


def who(ports: Ports, numbers: Mapping[str, Sequence[str]]) -> str:
    """8003, 8007 for ana-docker (10.0.0.5), 10.1.0.0/16"""
    names = [
        *(f"{name} ({', '.join(numbers.get(name, ()))})" for name in ports.gateways),
        *(["containers of this host"] if ports.containers else []),
        *ports.networks,
    ]
    return f"{', '.join(str(port) for _address, port in ports.engines)} for {', '.join(names)} only"


def _now(chain: Optional[Sequence[str]], saved: str) -> str:
    """What is not as wanted; empty where all is."""
    there, leads = chain_of(saved)
    if chain is None:
        return "" if there is None else "narrowed"
    if there is None or not leads:
        return EVERYONE
    return "" if list(map(_meaning, there)) == list(map(_meaning, chain)) else "other rules"


def chain_of(saved: str) -> tuple[Optional[list[str]], bool]:
    """Our chain's rules (None: it is not there) of what iptables-save says, and whether a packet comes to it."""
    lines = saved.splitlines()
    if not any(line.startswith(f":{CHAIN} ") for line in lines):
        return None, False
    leads = any(_meaning(line) == _meaning(JUMP) for line in lines if line.startswith("-A PREROUTING "))
    return [line for line in lines if line.startswith(f"-A {CHAIN} ")], leads


def _meaning(rule: str) -> frozenset[str]:
    """A rule without what releases of iptables write differently or not at all: order, whole masks, -m tcp."""
    parts = re.findall(r"(?:! )?-{1,2}[a-zA-Z][\w-]*(?: (?!-|! -)\S+)*", rule)
    unsaid = ("-m tcp", "-s 0.0.0.0/0", "-s ::/0")
    return frozenset(re.sub(r"/(32|128)$", "", part) for part in parts if part not in unsaid)
