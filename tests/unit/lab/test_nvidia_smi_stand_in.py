# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's nvidia-smi says what the real one says, in its formats, and counts exactly the living claims."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Callable

import pytest

ROOT = Path(__file__).resolve().parents[3]
SMI = ROOT / "lab" / "gpu" / "nvidia-smi"
REAL = ROOT / "tests" / "fixtures" / "nvidia-smi" / "h200"

H200 = {
    "name": "NVIDIA H200", "architecture": "Hopper", "memory_total_mib": 143771, "memory_reserved_mib": 616,
    "compute_cap": "9.0", "power_limit_w": 700,
}  # fmt: skip
Smi = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def account(tmp_path: Path) -> Path:
    (tmp_path / "claims").mkdir()
    (tmp_path / "dev").mkdir()
    cards = [
        {**H200, "index": n, "minor": n, "uuid": f"GPU-{n}", "bus_id": f"00000000:0{n + 1}:00.0"} for n in range(2)
    ]
    (tmp_path / "cards.json").write_text(json.dumps(cards))
    for n in range(2):
        (tmp_path / "dev" / f"nvidia{n}").touch()
    return tmp_path


@pytest.fixture
def smi(account: Path) -> Smi:
    environment = {**os.environ, "LAB_GPU_ACCOUNT": str(account), "LAB_GPU_DEVICES": str(account / "dev")}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(SMI), *words], env=environment, capture_output=True, text=True, check=False
        )

    return run


def claim(account: Path, gpu: int | str, mib: int, name: str = "VLLM::EngineCore") -> int:
    """Held by this test's own process until the descriptor is closed."""
    descriptor = os.open(account / "claims" / f"{gpu}-{mib}.json", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.write(descriptor, json.dumps({"gpu": gpu, "mib": mib, "name": name}).encode())
    return descriptor


def test_query_has_the_real_header_and_units(smi: Smi) -> None:
    header = (REAL / "query.csv").read_text().splitlines()[0]
    fields = ",".join(word.partition(" [")[0] for word in header.split(", "))
    assert smi(f"--query-gpu={fields}", "--format=csv,nounits").stdout.splitlines()[0] == header
    row = smi("--query-gpu=memory.total,memory.reserved,compute_cap", "--format=csv,noheader").stdout.splitlines()[0]
    assert row == "143771 MiB, 616 MiB, 9.0"


def test_unknown_field_is_refused_as_by_the_real_one(smi: Smi) -> None:
    said = smi("--query-gpu=index,bogus_field", "--format=csv")
    assert f"{said.stdout}rc={said.returncode}" == (REAL / "bad_field.txt").read_text().rstrip("\n")


def test_nothing_running_prints_the_header_only(smi: Smi) -> None:
    fields = "--query-compute-apps=gpu_uuid,pid,used_gpu_memory,process_name"
    assert smi(fields, "--format=csv").stdout == (REAL / "apps_idle.csv").read_text()
    assert smi(fields, "--format=csv,noheader").stdout == ""


def test_table_is_the_real_one_but_for_its_figures(smi: Smi) -> None:
    real = (REAL / "plain.txt").read_text().splitlines()
    ours = smi().stdout.splitlines()
    assert ours[1:8] == real[1:8]
    assert {len(line) for line in ours[1:]} == {91, 0}
    assert ours[-7:] == real[-7:]


def test_xml_uses_real_elements_only(smi: Smi, account: Path) -> None:
    real = {element.tag for element in ElementTree.parse(REAL / "q.xml").iter()}
    assert {element.tag for element in ElementTree.fromstring(smi("-q", "-x").stdout).iter()} <= real
    held = claim(account, 1, 4614)
    gpus = list(ElementTree.fromstring(smi("-q", "-x").stdout).iter("gpu"))
    os.close(held)
    assert [gpu.findtext("fb_memory_usage/used") for gpu in gpus] == ["0 MiB", "4614 MiB"]
    assert gpus[1].findtext("processes/process_info/pid") == str(os.getpid())


def test_claims_count_while_their_process_holds_them(smi: Smi, account: Path) -> None:
    query = ("--query-gpu=memory.used,memory.free", "--format=csv,noheader,nounits")
    held = [claim(account, 1, 38000), claim(account, "GPU-1", 2000)]  # by index or by UUID
    assert smi(*query).stdout.splitlines() == ["0, 143155", "40000, 103155"]
    apps = smi("--query-compute-apps=gpu_uuid,pid,used_memory,process_name", "--format=csv,noheader")
    assert sorted(apps.stdout.splitlines()) == [
        f"GPU-1, {os.getpid()}, 2000 MiB, VLLM::EngineCore",
        f"GPU-1, {os.getpid()}, 38000 MiB, VLLM::EngineCore",
    ]
    for descriptor in held:
        os.close(descriptor)
    assert smi(*query).stdout.splitlines() == ["0, 143155", "0, 143155"]  # the files are still there


def test_a_container_sees_its_cards_only_numbered_from_zero(smi: Smi, account: Path) -> None:
    (account / "dev" / "nvidia0").unlink()
    held = claim(account, 1, 500)
    assert smi("-L").stdout == "GPU 0: NVIDIA H200 (UUID: GPU-1)\n"
    assert smi("--query-gpu=index,memory.used", "--format=csv,noheader").stdout == "0, 500 MiB\n"
    os.close(held)


@pytest.mark.parametrize(
    ("fault", "status", "words"),
    [
        ("no_driver", 9, "couldn't communicate with the NVIDIA driver"),
        ("mismatch", 18, "Failed to initialize NVML: Driver/library version mismatch"),
        ("nvml_unknown", 255, "Failed to initialize NVML: Unknown Error"),
        ("no_devices", 6, "No devices were found"),
        ("old_driver", 2, 'Field "compute_cap" is not a valid field to query.'),
        ("na", 0, "[N/A], 9.0"),
        ("mig", 0, "Enabled"),
    ],
)
def test_host_faults(smi: Smi, account: Path, fault: str, status: int, words: str) -> None:
    (account / "smi_fault").write_text(fault + "\n")
    said = smi("--query-gpu=memory.total,compute_cap,mig.mode.current", "--format=csv")
    assert (said.returncode, words in said.stdout) == (status, True), said.stdout


def test_lost_cards(smi: Smi, account: Path) -> None:
    (account / "dev" / ".nvidia-lost").touch()
    assert smi("-L").stdout == "Failed to initialize NVML: Unknown Error\n"
