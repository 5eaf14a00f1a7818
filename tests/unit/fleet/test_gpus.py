# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-smi's real output, as hardware printed it, and the forms that other drivers and cards print."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters import nvidia_smi
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import gpus
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.model import Gpu

H200 = Path(__file__).parents[2] / "fixtures" / "nvidia-smi" / "h200"
UUID = "GPU-11111111-2222-3333-4444-555555555555"
FIXTURE_FIELDS = [field.split(" [")[0] for field in (H200 / "query.csv").read_text().splitlines()[0].split(", ")]
CARD = f"0, {UUID}, NVIDIA H200, 143771, 0, 143156, 580.159.04, 00000000:00:06.0, 616, 9.0, Disabled, Default, Enabled"


def body(name: str) -> str:
    return (H200 / name).read_text().split("\n", 1)[1]


def test_a_real_h200():
    (card,) = gpus.read_cards(FIXTURE_FIELDS, body("query.csv"))
    assert (card.index, card.uuid, card.name) == (0, UUID, "NVIDIA H200")
    assert (card.total_mib, card.reserved_mib, card.used_mib, card.free_mib) == (143771, 616, 0, 143156)
    assert card.compute_capability == "9.0"
    assert card.mig_mode == "Disabled"


def test_cuda_total_is_what_torch_measured_on_the_same_card():
    (card,) = gpus.read_cards(FIXTURE_FIELDS, body("query.csv"))
    torch_total_bytes = int((H200 / "torch.txt").read_text().split(", ")[1].split(")")[0])
    assert card.cuda_total_mib * gpus.MIB == pytest.approx(torch_total_bytes, abs=gpus.MIB)


def test_a_real_process_list():
    lines = (H200 / "torch.txt").read_text().splitlines()
    assert gpus.read_processes(lines[2]) == {UUID: (gpus.Process(427, 4614, "python3"),)}


def test_an_idle_card_has_no_processes():
    assert gpus.read_processes(body("apps_idle.csv")) == {}


def test_cuda_version_from_the_header():
    assert gpus.read_cuda_version((H200 / "plain.txt").read_text()) == "13.0"
    assert gpus.read_cuda_version("CUDA Version        : 12.8") == "12.8"
    assert gpus.read_cuda_version("nothing of the kind") == ""


def test_the_real_message_about_an_unknown_field():
    assert gpus.unknown_field((H200 / "bad_field.txt").read_text()) == "bogus_field"
    assert gpus.unknown_field(CARD) is None


@pytest.mark.parametrize("text", ["[N/A]", "[Not Supported]", "[Unknown Error]", "[Insufficient Permissions]", ""])
def test_a_figure_that_is_not_reported_is_unknown_and_never_zero(text):
    (card,) = gpus.read_cards(gpus.REQUIRED_FIELDS, f"0, {UUID}, NVIDIA GB10, {text}, {text}, {text}")
    assert (card.total_mib, card.used_mib, card.free_mib, card.cuda_total_mib) == (None, None, None, None)


def test_units_may_stand_behind_the_figures():
    (card,) = gpus.read_cards(gpus.REQUIRED_FIELDS, f"0, {UUID}, NVIDIA H200, 143771 MiB, 4623 MiB, 138534 MiB")
    assert (card.total_mib, card.used_mib, card.free_mib) == (143771, 4623, 138534)


def test_processes_without_a_name_or_a_figure_and_with_commas():
    text = f"{UUID}, 427, [N/A], [Not Found]\n{UUID}, 428, 512, python3, -c, x\n{UUID}, [N/A], 3, ghost\n"
    assert gpus.read_processes(text)[UUID] == (
        gpus.Process(427, None, ""),
        gpus.Process(428, 512, "python3, -c, x"),
    )


@pytest.mark.parametrize(
    ("output", "code"),
    [
        ("Failed to initialize NVML: Driver/library version mismatch\nNVML library version", "driver_library_mismatch"),
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
            "NVIDIA driver is installed and running.",
            "nvidia_driver_not_loaded",
        ),
        ("Failed to initialize NVML: Driver is not loaded", "nvidia_driver_not_loaded"),
        ("Failed to initialize NVML: Unknown Error", "gpu_lost"),
        ("Unable to determine the device handle for GPU0000:01:00.0: GPU is lost.  Reboot the system", "gpu_lost"),
        ("No devices were found", "no_gpu_found"),
        ("Failed to initialize NVML: Insufficient Permissions", "gpu_permission_denied"),
        ("something never seen", "nvidia_smi_failed"),
    ],
)
def test_trouble_has_a_code_and_a_remedy(output, code):
    trouble = gpus.explain(output)
    assert trouble.code == code
    assert trouble.remedy


class Smi:
    """Answers as nvidia-smi of some driver would; ``unknown`` are the fields it does not have."""

    def __init__(self, unknown=(), status=0, output=None):
        self.unknown, self.status, self.output, self.calls = unknown, status, output, []

    def __call__(self, argv):
        self.calls.append(argv)
        if argv == ["nvidia-smi"]:
            return 0, (H200 / "plain.txt").read_text()
        if "--query-compute-apps" in argv[1]:
            return 0, f"{UUID}, 427, 4614, python3\n"
        if self.output is not None:
            return self.status, self.output
        fields = argv[1].split("=")[1].split(",")
        for field in fields:
            if field in self.unknown:
                return 2, f'Field "{field}" is not a valid field to query.\n'
        values = dict(zip(gpus.CARD_FIELDS, CARD.split(", ")))
        return 0, ", ".join(values[field] for field in fields) + "\n"


def test_look_gives_cards_processes_and_cuda_level():
    report = nvidia_smi.look(Smi())
    assert report.cuda_version == "13.0"
    assert report.cards[0].processes == (gpus.Process(427, 4614, "python3"),)
    assert report.trouble is None


def test_an_old_driver_lacks_fields_and_is_still_read():
    smi = Smi(unknown=("compute_cap", "memory.reserved", "mig.mode.current"))
    (card,) = nvidia_smi.memory(smi).cards
    assert (card.total_mib, card.reserved_mib, card.compute_capability) == (143771, None, "")
    assert card.cuda_total_mib == 143771
    assert len(smi.calls) == 4


@pytest.mark.parametrize(
    ("status", "output", "code"),
    [
        (127, "", "nvidia_smi_missing"),
        (18, "Failed to initialize NVML: Driver/library version mismatch", "driver_library_mismatch"),
        (0, "No devices were found\n", "no_gpu_found"),
        (2, 'Field "uuid" is not a valid field to query.', "nvidia_smi_failed"),
        (124, "no answer within 60 s", "nvidia_smi_failed"),
    ],
)
def test_no_cards_come_with_a_reason(status, output, code):
    report = nvidia_smi.look(Smi(status=status, output=output))
    assert report.cards == ()
    assert report.trouble.code == code


def test_a_missing_program_is_told_from_a_failing_one():
    assert nvidia_smi.run(["modelfleet-no-such-program"])[0] == 127
    assert nvidia_smi.run(["false"])[0] == 1


GIB = 1024**3
PRESENT = gpus.read_cards(gpus.CARD_FIELDS, CARD)


@pytest.mark.parametrize(
    ("expected", "codes"),
    [
        ([Gpu(0)], []),
        ([Gpu(0, UUID, 143771 * gpus.MIB, "9.0")], []),
        ([Gpu(0, memory=140 * GIB + 411 * gpus.MIB)], []),
        ([Gpu(0), Gpu(1)], ["gpu_not_there"]),
        ([Gpu(0, uuid="GPU-0")], ["gpu_uuid_differs"]),
        ([Gpu(0, memory=96 * GIB)], ["gpu_memory_differs"]),
        ([Gpu(0, compute_capability="12.0")], ["gpu_capability_differs"]),
        ([], ["gpu_not_in_inventory"]),
        ([Gpu(1)], ["gpu_not_there", "gpu_not_in_inventory"]),
    ],
)
def test_the_inventory_against_the_card_that_is_there(expected, codes):
    findings = gpus.compare(expected, PRESENT, "ana-ml2")
    assert [finding.code for finding in findings] == codes
    assert all(finding.place.startswith("host_vars of ana-ml2: fleet_gpus") and finding.remedy for finding in findings)
