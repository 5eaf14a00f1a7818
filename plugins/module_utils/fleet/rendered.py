# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rendered stack: what the controller decided, as the host gets it.

Apart from how it is made (``compose``), because a host that only compares should not carry the engine's options.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Mapping, Optional

LABEL_STACK = "modelfleet.stack"
LABEL_HASH = "modelfleet.hash"


@dataclass(frozen=True)
class RenderedFile:
    content: str
    mode: str = "0644"
    secret: bool = False  # its content must not appear in a diff, a log or a report


@dataclass(frozen=True)
class RenderedStack:
    """Everything a rollout on the host needs to know about one stack; crosses the wire as plain JSON.

    ``service_definition`` is the service before Compose's ``$$`` escaping and without ``.env``: what a live container
    must look like. ``hash`` covers what the container is (service, options, secrets), not comments or key order, so
    that a new release of the collection that only words a header differently restarts nobody's model.
    """

    host: str
    name: str
    position: int
    directory: str
    container: str
    service: str
    image: str
    url: str  # as seen from the host itself
    served_model_name: str
    root: str  # what /v1/models must name as `root`
    max_model_len: Optional[int]  # None: the engine decides
    gpus: tuple[int, ...]
    gpu_uuids: tuple[str, ...]  # beside gpus; an empty text where the inventory names none
    share: Optional[float]
    kv_cache: Optional[int]  # bytes
    min_kv_tokens: Optional[int]
    timeout_s: int
    files: Mapping[str, RenderedFile]
    service_definition: Mapping[str, Any]
    secret_environment: Mapping[str, str]  # what .env adds to the environment
    hash: str
    labels: Mapping[str, str]
    asks: Mapping[str, Any]
    secrets: tuple[str, ...]  # values, for no_log
    api_key: str
    unit: str = ""  # text of its systemd unit, not part of the hash; empty: it has none
    engine: str = ""  # the version that the inventory says is in the image
    # Folders for caches -> mode, which the rollout makes where they are missing. Docker would make them without a word.
    folders: Mapping[str, str] = field(default_factory=dict)
    # repo, revision, cache (folder on the host) and home (the same in the container) of weights that come from the hub;
    # empty for a model that lies in a folder.
    weights: Mapping[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON. It holds the secrets: only for a parameter that is never logged."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RenderedStack:
        values = dict(data)
        for name in ("gpus", "gpu_uuids", "secrets"):
            values[name] = tuple(values[name])
        values["files"] = {name: RenderedFile(**content) for name, content in values["files"].items()}
        return cls(**values)
