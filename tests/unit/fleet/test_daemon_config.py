# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""daemon.json: what is merged, what stays, and whether a change may touch what runs."""

from __future__ import annotations

import json

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import daemon_config
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.errors import FleetError

NVIDIA = {"path": "nvidia-container-runtime", "args": []}
FOREIGN = {"labels": ["rack=12"], "log-opts": {"max-size": "10m"}, "someone-elses": {"deep": [1]}}


@pytest.mark.parametrize(
    ("current", "wanted", "complete", "how"),
    [
        pytest.param({}, {}, {}, {}, id="nothing"),
        pytest.param({}, {"debug": True}, {"debug": True}, {"debug": "reload"}, id="new key"),
        pytest.param({"debug": True}, {"debug": True}, {"debug": True}, {}, id="there already"),
        pytest.param({"debug": True}, {"debug": None}, {}, {"debug": "reload"}, id="taken away"),
        pytest.param({}, {"debug": None}, {}, {}, id="taken away and not there"),
        pytest.param({}, {"live-restore": True}, {"live-restore": True}, {"live-restore": "reload"}, id="live-restore"),
        pytest.param(
            {"log-driver": "json-file"},
            {"log-driver": "local"},
            {"log-driver": "local"},
            {"log-driver": "restart"},
            id="log driver",
        ),
        pytest.param({}, {"data-root": "/srv"}, {"data-root": "/srv"}, {"data-root": "restart"}, id="data-root"),
        pytest.param({}, {"invented": 1}, {"invented": 1}, {"invented": "restart"}, id="a key nobody knows"),
        pytest.param(
            {"insecure-registries": ["a:5000"]},
            {"insecure-registries": ["b:5000", "a:5000"]},
            {"insecure-registries": ["a:5000", "b:5000"]},
            {"insecure-registries": "reload"},
            id="a list gets what is missing",
        ),
        pytest.param(
            {"log-opts": {"max-size": "10m"}},
            {"log-opts": {"max-file": "3"}},
            {"log-opts": {"max-size": "10m", "max-file": "3"}},
            {"log-opts.max-file": "restart"},
            id="an object is merged",
        ),
        pytest.param(
            {},
            {"runtimes": {"nvidia": NVIDIA}},
            {"runtimes": {"nvidia": NVIDIA}},
            {"runtimes.nvidia": "reload"},
            id="runtime",
        ),
        pytest.param(
            {"runtimes": {"nvidia": {"path": "/usr/bin/nvidia-container-runtime"}, "kata": {"path": "kata"}}},
            {"runtimes": {"nvidia": NVIDIA}},
            {"runtimes": {"nvidia": {"path": "/usr/bin/nvidia-container-runtime"}, "kata": {"path": "kata"}}},
            {},
            id="the same runtime by its path",
        ),
        pytest.param(
            {"runtimes": {"nvidia": {"path": "/opt/other", "args": ["-x"]}}},
            {"runtimes": {"nvidia": NVIDIA}},
            {"runtimes": {"nvidia": NVIDIA}},
            {"runtimes.nvidia": "reload"},
            id="another runtime is replaced whole",
        ),
        pytest.param(
            {},
            {"features": {"cdi": True, "buildkit": True}},
            {"features": {"cdi": True, "buildkit": True}},
            {"features.cdi": "restart", "features.buildkit": "reload"},
            id="features of the start",
        ),
    ],
)
def test_merge(current, wanted, complete, how):
    merge = daemon_config.merge({**FOREIGN, **current}, wanted)
    assert merge.complete == {**FOREIGN, **complete}
    assert {change.key: change.how for change in merge.changes} == how
    assert daemon_config.merge(merge.complete, wanted).changes == ()


def test_what_is_given_stays_as_it_was():
    current = {"runtimes": {"kata": {"path": "kata"}}, "labels": ["a"]}
    before = json.dumps(current)
    daemon_config.merge(current, {"runtimes": {"nvidia": NVIDIA}, "labels": ["b"]})
    assert json.dumps(current) == before


RELOADED = {"debug": True}
RESTARTED = {"log-driver": "local"}


@pytest.mark.parametrize(
    ("wanted", "running", "reasons", "unheard", "restart", "containers", "how", "written", "pending"),
    [
        pytest.param({}, True, [], [], "idle", 3, "nothing", None, 0, id="nothing to do"),
        pytest.param(
            RESTARTED, False, [], [], "never", 0, "write", RESTARTED, 0, id="no daemon: it will start with it"
        ),
        pytest.param(RELOADED, True, [], [], "never", 3, "reload", RELOADED, 0, id="a reload is always allowed"),
        pytest.param(RESTARTED, True, [], [], "idle", 3, "nothing", None, 1, id="held back under containers"),
        pytest.param(RESTARTED, True, [], [], "idle", 0, "restart", RESTARTED, 0, id="idle host"),
        pytest.param(RESTARTED, True, [], [], "never", 0, "nothing", None, 1, id="never"),
        pytest.param(RESTARTED, True, [], [], "allowed", 3, "restart", RESTARTED, 0, id="allowed"),
        pytest.param({**RELOADED, **RESTARTED}, True, [], [], "idle", 1, "reload", RELOADED, 1, id="only the half"),
        pytest.param({}, True, ["hook"], [], "idle", 1, "nothing", None, 1, id="a reason without a key waits"),
        pytest.param({}, True, ["hook", "hook"], [], "idle", 1, "nothing", None, 1, id="a reason is said once"),
        pytest.param(
            {}, True, ["hook"], [], "idle", 0, "restart", None, 0, id="a reason without a key on an idle host"
        ),
        pytest.param({}, True, [], ["nvidia"], "never", 3, "reload", None, 0, id="in the file and not heard"),
    ],
)
def test_decide(wanted, running, reasons, unheard, restart, containers, how, written, pending):
    merge = daemon_config.merge(FOREIGN, wanted)
    decision = daemon_config.decide(merge, running, reasons, unheard, restart, containers)
    assert decision.how == how
    assert decision.config == (None if written is None else {**FOREIGN, **written})
    assert len(decision.pending) == pending


@pytest.mark.parametrize("text", [None, "", " \n", "{}"])
def test_no_settings(text):
    assert daemon_config.parse(text, "/etc/docker/daemon.json", "ana") == {}


@pytest.mark.parametrize("text", ["{", "[]", '"debug"', '{"debug": True}'])
def test_a_file_that_nobody_can_read_is_not_overwritten(text):
    with pytest.raises(FleetError, match=r"daemon_config_unreadable") as raised:
        daemon_config.parse(text, "/etc/docker/daemon.json", "ana")
    assert "/etc/docker/daemon.json" in str(raised.value)


def test_what_is_written_reads_back():
    assert json.loads(daemon_config.write(FOREIGN)) == FOREIGN


@pytest.mark.parametrize(
    ("argv", "wanted", "keys"),
    [
        (["dockerd", "-H", "fd://", "--containerd=/run/c.sock"], {"debug": True}, []),
        (["dockerd", "-H", "fd://"], {"hosts": ["tcp://0.0.0.0"]}, ["hosts"]),
        (["dockerd", "--insecure-registry=a"], {"insecure-registries": ["b"]}, ["insecure-registries"]),
        (["dockerd", "--add-runtime", "a=b"], {"runtimes": {"nvidia": NVIDIA}}, ["runtimes"]),
        (["dockerd", "--debug"], {"debug": False, "live-restore": True}, ["debug"]),
    ],
)
def test_flags_in_the_way(argv, wanted, keys):
    findings = daemon_config.flags_in_the_way(argv, daemon_config.merge({}, wanted).changes, "ana")
    assert [finding.place.split()[-1] for finding in findings] == keys


RUNTIME = {"runtimes": {"nvidia": NVIDIA}}


@pytest.mark.parametrize(
    ("text", "wanted", "runtimes", "reason", "settled"),
    [
        pytest.param("", {}, (), "", True, id="nothing wanted"),
        pytest.param("", {"debug": True}, (), "", False, id="no file"),
        pytest.param('{"debug": true, "labels": ["a"]}', {"debug": True}, (), "", True, id="in the file"),
        pytest.param('{"debug": false}', {"debug": True}, (), "", False, id="another value"),
        pytest.param("{not json", {}, (), "", False, id="unreadable"),
        pytest.param(json.dumps(RUNTIME), RUNTIME, ("nvidia", "runc"), "", True, id="runtime taken"),
        pytest.param(json.dumps(RUNTIME), RUNTIME, ("runc",), "", False, id="runtime in the file only"),
        pytest.param(json.dumps(RUNTIME), RUNTIME, None, "", True, id="no daemon that could take it"),
        pytest.param('{"debug": true}', {"debug": True}, (), "the hook is new", False, id="a restart is waited for"),
    ],
)
def test_settled(text, wanted, runtimes, reason, settled):
    assert daemon_config.settled(text, wanted, runtimes, reason) is settled
