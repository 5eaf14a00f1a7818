# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may use the gateway, without a database: LiteLLM calls ``user_api_key_auth`` for every request.

keys.json beside this file maps the SHA-256 of a client's key to its name, models, passed-through paths and requests a
minute. It is read again whenever it changes. The master key (from the environment) is for operators and may do all.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
from typing import Any

from fastapi import Request
from litellm.proxy._types import LitellmUserRoles, ProxyException, UserAPIKeyAuth
from litellm.proxy.common_utils.http_parsing_utils import _read_request_body

KEYS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "keys.json")
# What a client needs. Everything else (addresses of engines, health of routes, administration) is for the master key.
OPEN_TO_CLIENTS = (
    "/v1/",
    "/models",
    "/chat/completions",
    "/completions",
    "/embeddings",
    "/rerank",
    "/v2/rerank",
    "/responses",
)
PASSED_THROUGH = ("/classify/", "/reward/")
CLOSED = ("/v1/model/info", "/v1/model_group")

log = logging.getLogger(__name__)


class Keys:
    """keys.json as it is now."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.read: Any = None  # identity of the file that was read
        self.known: dict[str, dict[str, Any]] = {}

    def client(self, key: str) -> dict[str, Any] | None:
        try:
            status = os.stat(self.path)
            identity = (status.st_mtime_ns, status.st_ino, status.st_size)
            if identity != self.read:
                with open(self.path, encoding="utf-8") as file:
                    self.known = json.load(file)
                self.read = identity
        except (OSError, ValueError) as error:
            # Who was known stays known: a file that is being replaced must not lock everybody out.
            log.error("%s cannot be read: %s", self.path, error)
        return self.known.get(hashlib.sha256(key.encode()).hexdigest())


keys = Keys(KEYS)


def refuse(status: int, message: str, kind: str, param: str) -> ProxyException:
    return ProxyException(message=message, type=kind, param=param, code=status)


async def user_api_key_auth(request: Request, api_key: str) -> UserAPIKeyAuth:
    given = api_key or ""
    if given and hmac.compare_digest(given.encode(), os.environ["LITELLM_MASTER_KEY"].encode()):
        return UserAPIKeyAuth(api_key=given, key_alias="master", user_role=LitellmUserRoles.PROXY_ADMIN)
    client = keys.client(given) if given else None
    if client is None:
        said = "This key is not known here." if given else "A key is needed: Authorization: Bearer KEY."
        raise refuse(401, said, "auth_error", "None")
    name, models, path = client["name"], client["models"], request.url.path
    if path.startswith(PASSED_THROUGH):
        if not any(path == each or path.startswith(f"{each}/") for each in client["paths"]):
            raise refuse(403, f"The key of {name} is not for {path}.", "key_model_access_denied", "model")
    elif not path.startswith(OPEN_TO_CLIENTS) or path.startswith(CLOSED):
        raise refuse(403, f"{path} is for operators.", "auth_error", "None")
    elif models:
        model = (await _read_request_body(request=request)).get("model")
        if model and model not in models:
            raise refuse(403, f"The key of {name} is not for {model!r}.", "key_model_access_denied", "model")
    return UserAPIKeyAuth(
        api_key=given,
        key_alias=name,
        models=models,
        metadata={"allowed_passthrough_routes": client["paths"]},  # LiteLLM opens them to operators only
        rpm_limit=client["rpm"],
        user_role=LitellmUserRoles.INTERNAL_USER,
    )
