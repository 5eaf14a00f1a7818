# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which weights have to be on a host before its old containers stop, and what it means when they cannot be had."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Mapping, Sequence

from .rendered import RenderedStack
from .sizes import format_size

# What decides how the hub is reached. Nothing else of the stack's environment matters to the download.
_NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


@dataclass(frozen=True)
class Wanted:
    """One revision of one model for the stacks that share it."""

    repo: str
    revision: str  # empty: the hub's default branch
    cache: str  # folder on the host
    home: str  # the same in the container
    image: str
    network: str  # empty: Docker's own
    user: str
    environment: Mapping[str, str]  # may hold the token
    stacks: tuple[str, ...]

    @property
    def label(self) -> str:
        return f"{self.repo}@{self.revision[:12]}" if self.revision else self.repo


def wanted(stacks: Sequence[RenderedStack]) -> list[Wanted]:
    """What these stacks load from the hub, each once. A model that lies in a folder needs nothing."""
    found: dict[tuple[str, str, str], Wanted] = {}
    for stack in stacks:
        if not stack.weights:
            continue
        service = stack.service_definition
        everything = {**service.get("environment", {}), **stack.secret_environment}
        key = (stack.weights["repo"], stack.weights["revision"], stack.weights["cache"])
        if key in found:
            found[key] = replace(found[key], stacks=(*found[key].stacks, stack.name))
            continue
        found[key] = Wanted(
            *key,
            stack.weights["home"],
            stack.image,
            str(service.get("network_mode", "")),
            str(service.get("user", "")),
            {
                name: str(value)
                for name, value in everything.items()
                if name.startswith("HF_") or name.upper() in _NAMES
            },
            (stack.name,),
        )
    return list(found.values())


def percent(event: Mapping[str, Any]) -> int:
    return int(100 * event["have"] / event["total"]) if event.get("total") else 100


def told(one: Wanted, event: Mapping[str, Any]) -> str:
    """What a person sees of one line of the program."""
    if event["event"] == "size":
        return f"fetching {one.label}: {format_size(event['missing'])} of {format_size(event['total'])} are missing"
    if event["event"] == "progress":
        return f"fetching weights {percent(event)} %"
    if event["event"] == "no_library":
        return f"the image has no huggingface_hub, so {one.label} is not fetched before: {event['text']}"
    return f"weights of {one.label} are here"


def no_space(one: Wanted, event: Mapping[str, Any], host: str) -> dict[str, str]:
    """Code, what, why and what to change, for weights that do not fit the file system of the cache."""
    return {
        "code": "weights_no_space",
        "what": f"{one.label} needs {format_size(event['missing'])} more in {one.cache} of {host}, and only "
        f"{format_size(event['free'])} are free there",
        "why": "Nothing was fetched and nothing stopped: a disk that is full also stops what runs now.",
        "change": f"Remove models that nobody serves any more (`du -sh {one.cache}/hub/models--*`), or set "
        "vllm_stack_hub_cache to a folder on a larger file system.",
    }


def failed(one: Wanted, text: str) -> dict[str, str]:
    """The same for a download that ended otherwise, and that the table of known failures does not explain."""
    code, why = "weights_not_fetched", ""
    change = (
        "Run again: what is complete is kept. vllm_stack_prefetch: false leaves the download to the engine, whose old "
        "container is then stopped before."
    )
    if re.search(r"Connect(ion)?Error|Timeout|Name or service not known|name resolution", text):
        endpoint = one.environment.get("HF_ENDPOINT") or "https://huggingface.co"
        code, why = "hub_unreachable", f"No answer from {endpoint}, and {one.label} is not whole in {one.cache}."
        change = f"Is a proxy or a mirror (HF_ENDPOINT) missing in the model's env? {change}"
    elif "IncompleteSnapshot" in text:
        code, why = "hub_offline_not_cached", "It may not ask the hub, and an earlier download did not end."
        change = "Run once without vllm_stack_hub_offline; what is complete is kept."
    return {
        "code": code,
        "what": f"weights of {one.label} could not be fetched: {text}",
        "why": why,
        "change": change,
    }
