# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a registry says that Docker's API does not pass on: the list of tags, and when an image was made.

Anonymous only. Whoever cannot be read without a login is an ``error`` here; the daemon, which has the login, still
resolves the digest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Mapping, Optional
from urllib.parse import urlencode, urljoin, urlsplit

from .http import Fetch, HttpAnswer

TIMEOUT = 20.0
PAGES = 50  # of a thousand tags
KINDS = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)


class RegistryError(Exception):
    """The registry did not say it; the message is why."""


def split(repository: str) -> tuple[str, str]:
    """(registry, path) as Docker reads a repository: without a registry it is Docker Hub's."""
    first, slash, rest = repository.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return ("docker.io", rest) if first == "index.docker.io" else (first, rest)
    return "docker.io", repository if slash else f"library/{repository}"


@dataclass
class Registry:
    """One repository of a registry. It remembers the token that the registry gave."""

    repository: str
    fetch: Fetch
    plain_http: bool = False
    token: str = ""

    def tags(self) -> tuple[str, ...]:
        found: list[str] = []
        path = "tags/list?n=1000"
        for _page in range(PAGES):
            answer = self._get(path)
            found += [str(tag) for tag in (self._json(answer).get("tags") or ())]
            following = re.match(r"<([^>]+)>;\s*rel=\"?next", answer.headers.get("link", ""))
            if not following:
                break
            path = urljoin(self._url(path), following[1])
        return tuple(found)

    def created(self, digest: str, architecture: str = "amd64") -> str:
        """When the image under this digest was made (RFC 3339), of this architecture where it is made for several."""
        manifest = self._json(self._get(f"manifests/{digest}"))
        if manifest.get("manifests"):
            fitting = [
                each for each in manifest["manifests"] if each.get("platform", {}).get("architecture") == architecture
            ]
            manifest = self._json(self._get(f"manifests/{(fitting or manifest['manifests'])[0]['digest']}"))
        config = (manifest.get("config") or {}).get("digest")
        return str(self._json(self._get(f"blobs/{config}")).get("created") or "") if config else ""

    def _url(self, path: str) -> str:
        registry, name = split(self.repository)
        host = "registry-1.docker.io" if registry == "docker.io" else registry
        return urljoin(f"{'http' if self.plain_http else 'https'}://{host}/v2/{name}/", path)

    def _get(self, path: str) -> HttpAnswer:
        url = self._url(path)
        answer = self._ask(url)
        if answer.status == 401 and self._log_in(answer.headers.get("www-authenticate", "")):
            answer = self._ask(url)
        if answer.status in (301, 302, 307, 308):
            # A blob usually lies elsewhere, and that place must not see the token.
            answer = self.fetch("GET", urljoin(url, answer.headers.get("location", "")), timeout=TIMEOUT)
        if answer.status != 200:
            host = urlsplit(url).netloc
            raise RegistryError(f"{host} answers {answer.status}" if answer.status else f"{host}: {answer.error}")
        return answer

    def _ask(self, url: str) -> HttpAnswer:
        headers = {"Accept": KINDS}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        return self.fetch("GET", url, headers=headers, timeout=TIMEOUT)

    def _log_in(self, challenge: str) -> bool:
        """Whether the registry gives a token to somebody without a name."""
        words = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
        if not challenge.lower().startswith("bearer") or "realm" not in words:
            return False
        query = urlencode({name: words[name] for name in ("service", "scope") if name in words})
        given: Optional[Any] = self.fetch("GET", f"{words['realm']}?{query}", timeout=TIMEOUT).json()
        if isinstance(given, Mapping):
            self.token = str(given.get("token") or given.get("access_token") or "")
        return bool(self.token)

    @staticmethod
    def _json(answer: HttpAnswer) -> Mapping[str, Any]:
        said = answer.json()
        if not isinstance(said, Mapping):
            raise RegistryError("the answer is not what a registry says")
        return said
