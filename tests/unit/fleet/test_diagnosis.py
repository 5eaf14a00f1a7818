# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every known failure in every disguise a real log gives it, real logs, other versions' wordings, healthy starts."""

from __future__ import annotations

import random
import textwrap
import time
from pathlib import Path
from typing import Any, Callable

import pytest
import yaml
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import diagnosis, known_failures
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.diagnosis import diagnose, first_fatal

FIXTURES = Path(__file__).parents[2] / "fixtures"
LOGS = FIXTURES / "vllm" / "logs"
DATA = yaml.safe_load((FIXTURES / "failures" / "cases.yml").read_text(encoding="utf-8"))
CASES = [case for case in DATA["cases"] if case.get("log")]
HEALTHY = (LOGS / "start_qwen3_vl.txt").read_text(encoding="utf-8").splitlines()[:66]

# Cases that only Docker's own state tells apart: the log line is that of another case.
STATE = {"F103": {"restarts": 35}}

PREFIXES = (
    "",
    "(EngineCore_DP0 pid=271) ERROR 11-30 20:20:28 [core.py:1510] ",
    "(Worker_TP1 pid=4711) ERROR 11-30 20:20:28 [multiproc_executor.py:953] ",
    "(VllmWorker rank=1 pid=99) ERROR 04-09 05:39:54 [multiproc_executor.py:492] ",
    "ERROR 04-09 05:39:54 [core.py:390] ",
    "ERROR 12-16 21:40:15 engine.py:135] ",
    "qwen35-vl-1  | (APIServer pid=1) ",
    "vllm-qwen35 | ",
    "2026-11-30T20:20:28.123456789Z ",
    "[2026-02-24T20:21:58Z] (EngineCore_DP0 pid=6940) ",
    "Nov 30 20:20:28 ana-ml2 docker[812]: ",
    "\x1b[0;36m(EngineCore_DP0 pid=271)\x1b[0;0m ERROR 11-30 20:20:28 [core.py:1510] ",
    "[rank0]: ",
)


def plain(lines: list[str], rng: random.Random) -> list[str]:
    return list(lines)


def prefixed(lines: list[str], rng: random.Random) -> list[str]:
    prefix = rng.choice(PREFIXES)
    return [prefix + line for line in lines]


def coloured(lines: list[str], rng: random.Random) -> list[str]:
    return [f"\x1b[1;36mvllm-1  |\x1b[0m \x1b[31m{line}\x1b[0m" for line in lines]


def wrapped_at_spaces(lines: list[str], rng: random.Random) -> list[str]:
    prefix = rng.choice(PREFIXES)
    return [
        (prefix if number == 0 else "    ") + part
        for line in lines
        for number, part in enumerate(textwrap.wrap(line, rng.randint(60, 100), break_on_hyphens=False))
    ]


def wrapped_within_words(lines: list[str], rng: random.Random) -> list[str]:
    width = rng.randint(60, 100)
    return [
        part
        for line in lines
        for full in [rng.choice(PREFIXES) + line]
        for part in (full[start : start + width] for start in range(0, len(full), width))
    ]


def interleaved(lines: list[str], rng: random.Random) -> list[str]:
    """Another process writes after every line, and between the parts of a message that the collector has cut."""
    mixed = []
    for line in lines:
        for part in textwrap.wrap(line, 90, break_on_hyphens=False):
            mixed.append(f"(EngineCore_DP0 pid=271) {part}")
            mixed.append(f"(Worker_TP{rng.randint(0, 7)} pid=99) INFO 11-30 20:20:28 [gpu_worker.py:1] still here")
    return mixed


DISGUISES = (plain, prefixed, coloured, wrapped_at_spaces, wrapped_within_words, interleaved)


def around(lines: list[str], rng: random.Random) -> list[str]:
    start = rng.randint(0, 20)
    before, after = HEALTHY[start : rng.randint(start, len(HEALTHY))], HEALTHY[: rng.randint(0, 8)]
    return (
        [line for line in before if "non-default args" not in line]
        + lines
        + [line for line in after if "non-default args" not in line]
    )


@pytest.mark.parametrize("disguise", DISGUISES, ids=lambda disguise: disguise.__name__)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_a_known_failure_is_named_in_every_disguise(
    case: dict[str, Any], disguise: Callable[[list[str], random.Random], list[str]]
) -> None:
    for seed in range(3):
        rng = random.Random(f"{case['id']} {disguise.__name__} {seed}")
        log = around(disguise(case["log"], rng), rng)
        if case["id"] == "F48":
            # This one is told by where the log ends, so nothing later may stand around it.
            log = disguise(case["log"], rng)
        found = diagnose(log, **STATE.get(case["id"], {}))
        assert found, f"nothing found in {log}"
        assert (found[0].code, found[0].retryable) == (case["expect"]["diagnosis"], case["expect"]["retryable"]), log
        assert found[0].cause
        assert found[0].remedy
        assert "{" not in found[0].cause


@pytest.mark.parametrize("prefix", PREFIXES, ids=repr)
@pytest.mark.parametrize("benign", DATA["benign"], ids=lambda case: case["id"])
def test_a_benign_line_is_no_finding(benign: dict[str, Any], prefix: str) -> None:
    assert diagnose([prefix + line for line in benign["log"]]) == []
    assert all(first_fatal(prefix + line) is None for line in benign["log"])


@pytest.mark.parametrize("log", sorted(LOGS.glob("start_*.txt")), ids=lambda path: path.stem)
def test_a_healthy_start_with_refused_requests_is_no_finding(log: Path) -> None:
    lines = log.read_text(encoding="utf-8").splitlines()
    assert diagnose(lines) == []
    assert [line for line in lines if first_fatal(line)] == []


REAL = {
    "fail_arch_unknown": "architecture_unsupported",
    "fail_auto_tool_without_parser": "tool_parser_missing",
    "fail_bad_reasoning_parser": "unknown_reasoning_parser",
    "fail_bad_tool_parser": "unknown_tool_parser",
    "fail_chat_template_missing": "chat_template_missing",
    "fail_config_json_missing": "model_not_found",
    "fail_dies_on_first_request": "kernel_unsupported",
    "fail_docker_oom_killed": "container_oom_killed",
    "fail_gpu_memory_utilization_1_5": "invalid_argument_value",
    "fail_kv_cache_dtype_fp8": "quantization_capability",
    "fail_kv_cache_too_small": "kv_cache_too_small_for_context",
    "fail_max_model_len_too_large": "max_model_len_exceeds_model",
    "fail_model_dir_missing": "model_not_found",
    "fail_model_repo_offline": "hub_offline_not_cached",
    "fail_port_in_use": "port_in_use",
    "fail_preprocessor_missing": "preprocessor_missing",
    "fail_unknown_config_key": "unrecognized_argument",
    "fail_unknown_flag": "unrecognized_argument",
    "fail_weights_missing": "weights_missing",
    "fail_weights_wrong_shape": "weights_mismatch",
    "fail_xxhash_missing": "python_package_missing",
}


@pytest.mark.parametrize("log", sorted(LOGS.glob("fail_*.txt")), ids=lambda path: path.stem)
def test_a_real_log_gives_its_code(log: Path) -> None:
    oom = "oom" in log.stem
    found = diagnose(log.read_text(encoding="utf-8"), exit_code=137 if oom else 1, oom_killed=oom)
    assert found[0].code == REAL[log.stem]
    assert not found[0].line.startswith(("raise ", "File "))


def test_numbers_of_the_log_become_the_remedy() -> None:
    def remedy(line: str, **options: Any) -> str:
        return diagnose(line, options=options)[0].remedy

    free = "ValueError: Free memory on device cuda:0 (31.44/47.38 GiB) on startup is less than desired GPU memory "
    assert "at most 0.64 (now 0.95)" in remedy(free + "utilization (0.95, 45.01 GiB).")
    context = "(8.0 GiB KV cache is needed, which is larger than the available KV cache memory (6.0 GiB)"
    assert "at most 98304 (now 131072)" in remedy(
        f"ValueError: To serve at least one request with the models's max seq len (131072), {context}."
    ), "an old engine gives no estimate; the two sizes do"
    assert "at most 856 (now 1024)" in remedy("max_num_seqs (1024) exceeds available Mamba cache blocks (856).")
    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    assert "(now 4)" in remedy(oom, max_num_seqs=4)
    assert "now" not in remedy(oom).split("max_num_seqs")[1]
    heads = "ValueError: Total number of attention heads (12) must be divisible by tensor parallel size (5)."
    assert "one of 1, 2, 3, 4 (now 5)" in remedy(heads)


def test_the_engines_own_arguments_are_the_present_values() -> None:
    log = [
        "(APIServer pid=1) INFO 11-30 20:20:28 [utils.py:1] non-default args: {'max_model_len': 8192, 'port': 8007}",
        "ValueError: No available memory for the cache blocks.",
    ]
    assert "max_model_len (now 8192)" in diagnose(log, options={"max_model_len": 4096})[0].remedy


def test_specific_beats_generic_wherever_it_stands() -> None:
    wrapper = "RuntimeError: Engine core initialization failed. See root cause above."
    root = "ValueError: No available memory for the cache blocks."
    for log in ([wrapper, root], [root, wrapper]):
        assert [one.code for one in diagnose(log)] == ["kv_cache_no_memory"]


def test_out_of_memory_before_and_after_the_kv_cache_are_two_failures() -> None:
    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    assert [one.code for one in diagnose(oom)] == ["cuda_out_of_memory"]
    laid_out = "INFO 11-30 20:20:28 [kv_cache_utils.py:1] GPU KV cache size: 12,345 tokens"
    assert [one.code for one in diagnose([laid_out, oom])] == ["cuda_graph_oom"]


STUCK = "INFO: Avg generation throughput: 0.0 tokens/s, Running: 0 reqs, Waiting: 3 reqs"
BUSY = "INFO: Avg generation throughput: 41.5 tokens/s, Running: 1 reqs, Waiting: 0 reqs"


@pytest.mark.parametrize(
    ("log", "codes"),
    [
        ([STUCK], ["engine_hang"]),
        ([BUSY, STUCK, 'INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 200 OK'], ["engine_hang"]),
        ([STUCK, BUSY], []),
        ([STUCK, BUSY, STUCK], ["engine_hang"]),
        ([STUCK, 'INFO:     127.0.0.1:1 - "POST /v1/chat/completions HTTP/1.1" 200 OK'], []),
    ],
)
def test_a_queue_that_moves_again_is_no_hang(log: list[str], codes: list[str]) -> None:
    assert [one.code for one in diagnose(log)] == codes


def test_a_looping_container_is_explained_by_its_first_attempt() -> None:
    start = "INFO 11-30 20:20:28 [utils.py:1] non-default args: {'port': 8000}"
    first = "ValueError: No available memory for the cache blocks."
    later = "ValueError: Free memory on device (3.1/47.3 GiB) on startup is less than desired GPU memory utilization"
    log = [start, first, start, later, start, later]
    assert [one.code for one in diagnose(log)] == ["kv_cache_no_memory"]
    loop = diagnose(log, restarts=5)
    assert [one.code for one in loop] == ["restart_loop", "kv_cache_no_memory"]
    assert loop[0].values["first_code"] == "kv_cache_no_memory"
    assert "5 times" in loop[0].cause


def test_a_restarted_container_without_a_failure_in_its_first_attempt_is_read_whole() -> None:
    start = "INFO 11-30 20:20:28 [utils.py:1] non-default args: {'port': 8000}"
    log = [
        start,
        "INFO:     Application startup complete.",
        start,
        "ValueError: No available memory for the cache blocks.",
    ]
    assert [one.code for one in diagnose(log)] == ["kv_cache_no_memory"]


@pytest.mark.parametrize(
    ("log", "state", "said"),
    [
        (
            ["(EngineCore_DP0 pid=2) ERROR 11-30 20:20:28 [core.py:1] RuntimeError: a thing nobody knows"],
            {},
            "a thing nobody",
        ),
        (["Traceback (most recent call last):", "RuntimeError: a thing nobody knows"], {"exit_code": 1}, "exit code 1"),
        (["INFO 11-30 20:20:28 [a.py:1] fine"], {"exit_code": 0}, "exit code 0"),
        ([], {"exit_code": 139}, "SIGSEGV"),
        ([], {"exit_code": 137}, "SIGKILL"),
    ],
)
def test_an_unknown_failure_is_still_an_answer(log: list[str], state: dict[str, Any], said: str) -> None:
    found = diagnose(log, **state)
    assert [one.code for one in found] == ["unknown_failure"]
    assert said in found[0].cause + "".join(found[0].lines)


def test_the_last_words_of_the_engine_are_shown_not_those_of_the_server() -> None:
    log = (LOGS / "fail_dies_on_first_request.txt").read_text(encoding="utf-8")
    shown = " ".join(diagnose(log, exit_code=0)[0].lines)
    assert "Unexpected head dim size, 32" in shown


def test_a_log_without_an_end_and_without_errors_says_nothing() -> None:
    assert diagnose("") == []
    assert diagnose(HEALTHY) == []


@pytest.mark.parametrize(
    ("secret", "line"),
    [
        ("hf_abcdefghijklmnop", "OSError: You are trying to access a gated repo. token=hf_abcdefghijklmnop"),
        ("not-needed", "401 Authentication Error, LiteLLM Virtual Key expected. Received=not-needed, expected"),
        ("s3cr3tpass", "OSError: You are trying to access a gated repo at https://user:s3cr3tpass@hub.example/x"),
        ("abc.def-ghi", "OSError: You are trying to access a gated repo. Authorization: Bearer abc.def-ghi"),
        ("topsecret", "RuntimeError: unheard of, api_key='topsecret'"),
        ("topsecret", "vllm: error: unrecognized arguments: --api-key topsecret"),
    ],
)
def test_secrets_are_masked(secret: str, line: str) -> None:
    found = diagnose(line, exit_code=1)
    assert found
    assert secret not in repr(found)


def test_a_dead_restart_is_not_certain_on_a_stream() -> None:
    assert first_fatal("torch.OutOfMemoryError: CUDA out of memory.") is None
    assert first_fatal("WARNING 11-30 20:20:28 [a.py:1] [Errno 28] No space left on device") is None
    fatal = first_fatal(
        "(EngineCore pid=3) ERROR 11-30 20:20:28 [core.py:1] ValueError: No available memory for the cache blocks."
    )
    assert fatal is not None
    assert fatal.code == "kv_cache_no_memory"


def test_fifty_thousand_lines_are_read_fast_and_the_one_line_is_found() -> None:
    lines = [f"{line} {number}" for number in range(760) for line in HEALTHY if "non-default" not in line]
    lines[30_000] = "ValueError: No available memory for the cache blocks."
    start = time.process_time()
    found = diagnose(lines)
    spent = time.process_time() - start
    assert [one.code for one in found] == ["kv_cache_no_memory"]
    assert len(lines) > 48_000
    assert spent < 4, "about half a second on a quiet machine; the limit is for busy ones"


def test_the_table_can_be_searched_and_is_complete() -> None:
    for pattern in diagnosis._PATTERNS:
        assert len(pattern.anchor) >= 5, f"{pattern.known.code}: {pattern.regex.pattern} has no literal part to search"
    for known in known_failures.TABLE:
        assert all(address.startswith("https://") for address in known.source), known.code
        assert known.code.isidentifier()
        assert known.code == known.code.lower()
    codes = {known.code for known in known_failures.TABLE}
    assert {code for known in known_failures.TABLE for code in known.replaces} <= codes
    texts = {(known.code, known.cause, known.remedy, known.patterns) for known in known_failures.TABLE}
    assert len(texts) == len(known_failures.TABLE)


REPORTED = yaml.safe_load((FIXTURES / "failures" / "reported.yml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "report",
    REPORTED["reported"],
    ids=lambda report: f"{report['code']} {report['source'].rsplit('/', 1)[1]}",
)
def test_wordings_of_other_versions_are_known(report: dict[str, Any]) -> None:
    assert [one.code for one in diagnose(report["line"])] == [report["code"]]


@pytest.mark.parametrize("report", REPORTED["benign"], ids=lambda report: report["source"].rsplit("/", 1)[1])
def test_reported_lines_of_healthy_starts_are_no_finding(report: dict[str, Any]) -> None:
    assert diagnose(report["line"]) == []
    assert first_fatal(report["line"]) is None
