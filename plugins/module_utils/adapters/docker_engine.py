# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the Docker daemon says, through the Docker SDK for Python: containers, images, logs, pulls.

Answers are the daemon's own objects (``docker inspect``). An instance may be used from several threads.
"""

from __future__ import annotations

import os
import shutil
import threading
from typing import Any, Callable, Mapping, Optional, Union

from ..fleet import drift
from ..fleet.pulling import PullProgress
from ..fleet.rendered import LABEL_STACK
from . import command

try:
    import docker
    from docker.errors import DockerException, ImageNotFound, NotFound
    from requests.exceptions import RequestException
except ImportError as error:  # the module says it in its own words
    MISSING: Optional[str] = str(error)
else:
    MISSING = None

API_TIMEOUT_SECONDS = 120
SYSTEM_PATHS = ("/usr/sbin", "/sbin")  # not in everybody's PATH
LOG_LINES = 5000  # at a time; the daemon reads its log file from the start when it is not limited


class EngineError(Exception):
    """The daemon refused or could not be reached; the message is its own."""


class Unseen(EngineError):
    """A check cannot see what a run, which installs something first, will see."""


class Engine:
    def __init__(self) -> None:
        if MISSING:
            raise EngineError(
                f"The Docker SDK for Python is not installed for this interpreter ({MISSING}). "
                "Install it on the host, for example with: apt-get install python3-docker"
            )
        self._local = threading.local()

    @property
    def _client(self) -> Any:
        # The SDK's session is not made for several threads: each gets its own.
        client = getattr(self._local, "client", None)
        if client is None:
            try:
                client = docker.APIClient(version="auto", timeout=API_TIMEOUT_SECONDS, **_environment())
            except (DockerException, RequestException) as error:
                raise EngineError(
                    f"The Docker daemon cannot be reached: {error}. Until it answers, nothing of its containers can be "
                    "seen: look at `systemctl status docker` and `journalctl -u docker -n 50`."
                ) from error
            self._local.client = client
        return client

    def ours(self, label: str = LABEL_STACK) -> list[dict[str, Any]]:
        """Every container that carries our label, running or not."""
        listed = self._call(lambda: self._client.containers(all=True, filters={"label": label}))
        found = (self.container(entry["Id"]) for entry in listed)
        return [container for container in found if container is not None]

    def all(self) -> list[dict[str, Any]]:
        """Every container of the host, running or not."""
        found = (self.container(entry["Id"]) for entry in self._call(lambda: self._client.containers(all=True)))
        return [container for container in found if container is not None]

    def container(self, name: str) -> Optional[dict[str, Any]]:
        """By name or id; None when there is none."""
        answer: Optional[dict[str, Any]] = self._call(lambda: self._client.inspect_container(name))
        return answer

    def image(self, reference: str) -> Optional[dict[str, Any]]:
        """By reference or id; None when it is not on this host."""
        answer: Optional[dict[str, Any]] = self._call(lambda: self._client.inspect_image(reference))
        return answer

    def registry_digest(self, reference: str) -> str:
        """What the registry has under ``repository:tag`` right now, asked by the daemon itself. Pulls nothing."""
        try:
            answer: dict[str, Any] = self._client.inspect_distribution(reference)
        except (DockerException, RequestException) as error:  # an unknown tag is no answer here
            raise EngineError(_told(error)) from error
        return str(answer["Descriptor"]["digest"])

    def speaks_plain_http(self, registry: str) -> bool:
        """Whether the daemon may talk to this registry without TLS."""
        known = (self._call(self._client.info).get("RegistryConfig") or {}).get("IndexConfigs") or {}
        return registry in known and not known[registry].get("Secure", True)

    def pull(self, reference: str, progress: Callable[[int], None]) -> None:
        """Pull ``repository@digest``; ``progress`` is told the percentage, never a smaller one than before."""
        so_far = PullProgress()
        try:
            for event in self._client.pull(reference, stream=True, decode=True):
                if "error" in event:
                    raise EngineError(str(event["error"]))
                so_far = so_far.after(event)
                progress(so_far.percent)
        except (DockerException, RequestException) as error:  # an image that is not there is no answer here
            raise EngineError(_told(error)) from error

    def logs(self, container: str, after: float = 0.0) -> list[tuple[float, str]]:
        """(seconds since the epoch, line) of everything the container wrote later than ``after``."""
        # Older SDKs take whole seconds only, so the overlap is cut here.
        options = {"since": int(after)} if after >= 1 else {}
        raw = self._call(
            lambda: self._client.logs(container, stdout=True, stderr=True, timestamps=True, tail=LOG_LINES, **options)
        )
        lines = []
        for line in (raw or b"").decode("utf-8", "replace").splitlines():
            stamp, _space, text = line.partition(" ")
            written = drift.moment(stamp)
            if written is not None and written > after:
                lines.append((written, text))
        return lines

    def processes(self, container: str) -> list[tuple[int, str]]:
        """(process id on the host, command line) of each process in the container; empty where nobody can say."""
        try:
            listed = self._client.top(container, ps_args="-eo pid,args")["Processes"] or ()
        except (DockerException, RequestException):  # it does not run, or the host has no ps
            return []
        return [(int(each[0]), str(each[1])) for each in listed]

    def ends(self, container: str, since: float, until: float) -> list[tuple[int, bool]]:
        """(exit code, killed for memory) of each time the container's process ended, which a restart covers up."""
        events = self._call(
            lambda: list(
                self._client.events(
                    since=f"{since:.6f}",
                    until=f"{until:.6f}",
                    decode=True,
                    filters={"container": container, "event": ["die", "oom"]},
                )
            )
        )
        ends, oom = [], False
        for event in events or ():
            if event.get("status") == "oom":
                oom = True
            elif event.get("status") == "die":
                ends.append((int(event["Actor"]["Attributes"].get("exitCode", 0)), oom))
                oom = False
        return ends

    def stop(self, container: str, seconds: int = 30) -> None:
        self._call(lambda: self._client.stop(container, timeout=seconds))

    def remove(self, container: str) -> None:
        """Stop it if need be, and remove it; its named volumes stay."""
        self._call(lambda: self._client.remove_container(container, force=True))

    def rename(self, container: str, name: str) -> None:
        self._call(lambda: self._client.rename(container, name))

    def restart_policy(self, container: str, policy: Mapping[str, Any]) -> None:
        self._call(lambda: self._client.update_container(container, restart_policy=dict(policy)))

    def start(self, container: str) -> None:
        self._call(lambda: self._client.start(container))

    def _call(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except (NotFound, ImageNotFound):
            return None
        except (DockerException, RequestException) as error:
            raise EngineError(_told(error)) from error


class NoEngine:
    """A host without a container engine has no container and no image. For a look at what a run would do there."""

    def ours(self, label: str = LABEL_STACK) -> list[dict[str, Any]]:
        return []

    def container(self, name: str) -> None:
        return None

    def image(self, reference: str) -> None:
        return None


def installed() -> bool:
    return shutil.which("dockerd", path=os.pathsep.join((os.environ.get("PATH", ""), *SYSTEM_PATHS))) is not None


def to_check() -> Union[Engine, NoEngine]:
    """In check mode nothing has been installed by now, and all that it would run is still to come."""
    if not installed():
        return NoEngine()
    if not MISSING:
        return Engine()
    for what in (("ps", "-aq"), ("image", "ls", "-aq")):
        seen = command.run(["docker", *what])
        if not seen.ok or seen.output.strip():
            raise Unseen("The containers cannot be compared before a run has installed the Docker SDK for Python.")
    return NoEngine()


def _told(error: Exception) -> str:
    return str(getattr(error, "explanation", None) or error)


def _environment() -> dict[str, Any]:
    options: dict[str, Any] = docker.utils.kwargs_from_env()
    return options
