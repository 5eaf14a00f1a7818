# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter, and what stack_logs says about a container as Docker describes it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.modelfleet.inference.plugins.filter.diagnose import FilterModule
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.units import LiveUnit
from ansible_collections.modelfleet.inference.plugins.modules import stack_logs

ROOT = Path(__file__).parents[3]
diagnose = FilterModule().filters()["diagnose"]
START = "INFO 11-30 20:20:28 [utils.py:1] non-default args: {'max_model_len': 8192}"
KV = "ValueError: No available memory for the cache blocks."


@pytest.mark.parametrize("log", [f"{START}\n{KV}\n", [START, KV]])
def test_a_log_becomes_plain_data(log: Any) -> None:
    (found,) = diagnose(log)
    assert json.loads(json.dumps(found)) == found
    assert (found["code"], found["severity"], found["line"]) == ("kv_cache_no_memory", "fatal", KV)
    assert "max_model_len (now 8192)" in found["remedy"]


def test_dockers_state_and_the_options_count() -> None:
    assert diagnose("", exit_code=137, oom_killed=True)[0]["code"] == "container_oom_killed"
    assert diagnose(KV, restarts=9)[0]["code"] == "restart_loop"
    assert "(now 4)" in diagnose(KV, options={"max_num_seqs": 4})[0]["remedy"]


def test_what_is_no_log_is_refused_with_the_way_to_use_it() -> None:
    with pytest.raises(AnsibleFilterError, match=r"not int.*lookup\('file'"):
        diagnose(42)


def container(**state: Any) -> dict[str, Any]:
    restarts = state.pop("restarts", 0)
    labels = {"modelfleet.stack": "one", "com.docker.compose.project.working_dir": state.pop("folder", "")}
    return {"Name": "/vllm-one", "Config": {"Labels": labels}, "RestartCount": restarts, "State": state}


def test_a_stack_that_ended_is_explained(tmp_path: Path) -> None:
    (tmp_path / ".modelfleet").mkdir()
    failure = {"failure": {"code": "kv_cache_no_memory", "what": "the container ended"}}
    (tmp_path / ".modelfleet" / "failed.json").write_text(json.dumps(failure), encoding="utf-8")
    lines = [START, KV, "api_key=topsecret"]
    ended = container(Status="exited", ExitCode=1, restarts=1, folder=str(tmp_path))
    entry = stack_logs.explain(ended, lines, shown=2)
    assert [finding["code"] for finding in entry["findings"]] == ["kv_cache_no_memory"]
    assert entry["failed_rollout"]["code"] == "kv_cache_no_memory"
    assert entry["log"] == [KV, "api_key=***"]
    said = stack_logs.report(entry)
    assert said[0] == "one (vllm-one): exited with code 1, started again 1 times; its start came to: starting"
    assert said[-1] == "  the last rollout failed with kv_cache_no_memory: the container ended"


def test_why_its_unit_leaves_it_down_is_said() -> None:
    entry = stack_logs.explain(container(Status="exited", ExitCode=1), [START], shown=0)
    assert not any("unit" in line for line in stack_logs.report(entry))
    blown = LiveUnit(active="failed", exit_status=3, last_failure="it is exited with exit status 1 at noon").state
    assert "  its unit: crash fuse has blown, stays down: it is exited with exit status 1 at noon" in stack_logs.report(
        {**entry, "unit": blown}
    )


def test_a_running_stack_with_a_clean_log_has_nothing_wrong() -> None:
    running = container(Status="running", ExitCode=0, Health={"Status": "healthy"}, restarts=7)
    entry = stack_logs.explain(running, [START, "INFO:     Application startup complete."], shown=0)
    assert (entry["findings"], entry["failed_rollout"], entry["log"]) == ([], None, [])
    assert stack_logs.report(entry)[-1] == "  the log shows nothing wrong"


def test_the_page_of_known_failures_is_up_to_date() -> None:
    checked = subprocess.run(
        [sys.executable, ROOT / "tools" / "diagnosis_doc.py", "--check"], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def test_anyone_can_paste_a_log_into_the_line_of_the_documentation(tmp_path: Path) -> None:
    """With the inventory of ansible.cfg, which is the lab's, whether that is up or not."""
    (tmp_path / "x.log").write_text(KV)
    expression = "msg={{ lookup('file', log) | modelfleet.inference.diagnose }}"
    ansible = Path(sys.executable).with_name("ansible")
    done = subprocess.run(
        [ansible, "localhost", "-m", "debug", "-a", expression, "-e", f"log={tmp_path}/x.log"],
        cwd=ROOT, env={**os.environ, "LAB_NAME": "no-such-lab"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "code: kv_cache_no_memory" in done.stdout
