# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The words of the inventory as frozen values: image, model, GPU, stack, gateway, fleet.

Nothing here decides anything. ``inventory`` makes these values, ``plan`` judges them, ``compose`` and ``routes``
render them. Memory is always in bytes; ``sizes`` turns it into text with a unit and back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping, Optional

TASKS = ("chat", "embed", "rerank", "classify", "reward")
MODALITIES = ("text", "image", "video", "audio")


@dataclass(frozen=True)
class Image:
    """A container image. Only ``repository@digest`` is ever started; the tag is for people."""

    name: str
    repository: str
    digest: str  # "sha256:" and 64 hex digits; the plan refuses anything else
    tag: str = ""
    engine: str = ""  # the vLLM (or LiteLLM) version inside, such as "0.19.2"
    watch: str = ""

    @property
    def reference(self) -> str:
        """What Docker is told to start: ``repository@digest``, never ``tag@digest``."""
        return f"{self.repository}@{self.digest}"


@dataclass(frozen=True)
class Check:
    """A question of the owner's own: every group of ``expect`` must match, any word of a group will do."""

    ask: str
    expect: tuple[tuple[str, ...], ...]
    image: str = ""  # URL, data URL or absolute path on the controller; empty: a text question
    thinking: bool = False
    max_tokens: int = 120


@dataclass(frozen=True)
class Model:
    """What a model is, wherever it runs. ``name`` is the name clients ask for."""

    name: str
    source: str  # hub repository, or an absolute path on the host
    image: str  # name of an Image
    task: str = "chat"
    modalities: tuple[str, ...] = ("text",)
    thinking: bool = False
    revision: str = ""
    memory_floor: Optional[int] = None  # bytes; measured: below it the engine does not start
    args: Mapping[str, Any] = field(default_factory=dict)  # vLLM's own option names, underscores
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)  # environment that lands in .env only
    checks: tuple[Check, ...] = ()


@dataclass(frozen=True)
class Gpu:
    """A card the inventory expects in a host. Everything but the index is optional and is compared when given."""

    index: int
    uuid: str = ""
    memory: Optional[int] = None  # bytes, as nvidia-smi's memory.total says
    compute_capability: str = ""  # "12.0"
    keep_free: str = ""  # a reason; then no stack may be placed here


@dataclass(frozen=True)
class Stack:
    """A placement: this model, on these GPUs of this host, behind this port. One Compose project, one folder.

    ``args``, ``env``, ``image`` and ``checks`` are already merged: lower (the stack) has beaten upper (the model).
    """

    host: str
    position: int  # index in fleet_stacks, which is the start order on a shared GPU
    name: str
    model: Model
    image: Image
    gpus: tuple[int, ...]
    port: int
    container: str
    args: Mapping[str, Any]
    env: Mapping[str, str]
    secrets: Mapping[str, str]
    checks: tuple[Check, ...]
    gpu_memory_utilization: Optional[float] = None  # share of CUDA's total
    kv_cache: Optional[int] = None  # bytes; absolute KV cache instead of a share
    min_kv_tokens: Optional[int] = None
    listen: str = ""  # address the port is published on; empty: the role's default
    weight: Optional[int] = None  # share of the gateway's traffic among replicas
    api_key: str = ""  # secret
    compose: Mapping[str, Any] = field(default_factory=dict)  # merged over the rendered service

    @property
    def place(self) -> str:
        return f"host_vars of {self.host}: fleet_stacks[{self.position}]"

    @property
    def served_model_name(self) -> str:
        return self.model.name

    @property
    def tensor_parallel_size(self) -> int:
        return int(self.args.get("tensor_parallel_size", len(self.gpus) or 1))


@dataclass(frozen=True)
class ClientKey:
    """A key of the gateway for one client, without a database."""

    name: str
    key: str  # secret
    models: tuple[str, ...] = ()  # empty: every model
    rpm: Optional[int] = None


@dataclass(frozen=True)
class Gateway:
    """What clients talk to: LiteLLM on one host, with routes to every stack of the fleet."""

    host: str
    image: Image
    master_key: str  # secret
    port: int = 4000
    listen: str = ""
    aliases: Mapping[str, str] = field(default_factory=dict)
    fallbacks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    context_window_fallbacks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    keys: tuple[ClientKey, ...] = ()
    database_url: str = ""  # secret
    addresses: Mapping[str, str] = field(default_factory=dict)  # host -> address: of a GPU host from here, and our own
    timeout: int = 600  # seconds
    stream_timeout: int = 60  # seconds
    settings: Mapping[str, Any] = field(default_factory=dict)  # merged over LiteLLM's router_settings
    compose: Mapping[str, Any] = field(default_factory=dict)
    instances: int = 1
    balancer: Optional[Image] = None  # HAProxy, which stands before several instances


@dataclass(frozen=True)
class Host:
    name: str
    gpus: tuple[Gpu, ...] = ()
    stacks: tuple[Stack, ...] = ()  # inventory order


@dataclass(frozen=True)
class Fleet:
    """The whole inventory, checked for shape. ``plan`` says whether it can work."""

    hosts: Mapping[str, Host]
    images: Mapping[str, Image]
    models: Mapping[str, Model]
    gateways: Mapping[str, Gateway] = field(default_factory=dict)
