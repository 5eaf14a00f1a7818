# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated engine as a plain process: it must behave as the real one where the collection looks."""

from __future__ import annotations

import base64
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Iterator, Optional

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import picture

ENGINE = Path(__file__).parents[3] / "lab" / "engine" / "engine.py"
TOTAL = 16000 - 340  # MiB that CUDA sees of a card below


def card(index: int) -> dict[str, Any]:
    return {
        "index": index,
        "uuid": f"GPU-{index}0000000-0000-0000-0000-000000000000",
        "name": "NVIDIA Test",
        "memory_total_mib": 16000,
        "memory_reserved_mib": 340,
        "compute_cap": "12.0",
    }


@pytest.fixture
def gpu(tmp_path: Path) -> Path:
    folder = tmp_path / "gpu"
    (folder / "claims").mkdir(parents=True)
    (folder / "faults").mkdir()
    (folder / "cards.json").write_text(json.dumps([card(0), card(1)]))
    return folder


class Run:
    """One engine process and its log."""

    def __init__(self, gpu: Path, config: str, *argv: str, **environment: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.log_path = gpu / f"log-{self.port}"
        path = gpu / f"vllm-{self.port}.yaml"
        path.write_text(f"host: 127.0.0.1\nport: {self.port}\n{config}")
        self.log_file = self.log_path.open("w")
        self.process = subprocess.Popen(
            [sys.executable, str(ENGINE), "--config", str(path), *argv],
            stdout=self.log_file,
            stderr=self.log_file,
            env={
                "PATH": os.environ["PATH"],
                "SIM_GPU_DIR": str(gpu),
                "SIM_LOAD_SECONDS": "0.1",
                "NVIDIA_VISIBLE_DEVICES": "1",
                "PYTHONDONTWRITEBYTECODE": "1",
                **environment,
            },
        )

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def until(self, text: str, seconds: float = 20) -> None:
        end = time.monotonic() + seconds
        while text not in self.log:
            assert self.process.poll() is None, self.log[-2000:]
            assert time.monotonic() < end, self.log[-2000:]
            time.sleep(0.02)

    def ready(self) -> Run:
        self.until("Application startup complete.")
        return self

    def status(self, seconds: float = 20) -> int:
        return self.process.wait(seconds)

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            raw = answer.read()
        finally:
            connection.close()
        try:
            return answer.status, json.loads(raw)
        except ValueError:
            return answer.status, raw.decode()

    def ask(self, text: str, *pictures: bytes, **more: Any) -> dict[str, Any]:
        """The message of one chat answer, told not to think."""
        parts: list[Any] = [
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(p).decode()}"}}
            for p in pictures
        ]
        body = {
            "messages": [{"role": "user", "content": [*parts, {"type": "text", "text": text}]}],
            "max_tokens": 120,
            "chat_template_kwargs": {"enable_thinking": False},
            **more,
        }
        status, answer = self.call("POST", "/v1/chat/completions", body)
        assert status == 200, answer
        return {**answer["choices"][0]["message"], "finish": answer["choices"][0]["finish_reason"]}


@pytest.fixture
def start(gpu: Path) -> Iterator[Any]:
    runs: list[Run] = []

    def begin(config: str, *argv: str, **environment: str) -> Run:
        runs.append(Run(gpu, config, *argv, **environment))
        return runs[-1]

    yield begin
    for run in runs:
        run.process.kill()
        run.process.wait()
        run.log_file.close()


CHAT = """\
model: Qwen/Qwen3.5-9B
served-model-name: qwen3.5-9b-fp8
gpu-memory-utilization: 0.4
max-model-len: 4096
enable-auto-tool-choice: true
tool-call-parser: qwen3_xml
reasoning-parser: qwen3
limit-mm-per-prompt:
  image: 3
  video: 1
"""


def held(gpu: Path, index: int) -> int:
    """MiB that the claims on a card state."""
    claims = [json.loads(path.read_text()) for path in (gpu / "claims").glob("*.json")]
    return sum(claim["mib"] for claim in claims if claim["gpu"] == index)


# ---------------------------------------------------------------------------------------------- a good start
def test_it_starts_serves_and_stops_like_the_real_engine(start: Any, gpu: Path) -> None:
    run = start(CHAT).ready()
    for line in (
        "Resolved architecture:",
        "Loading safetensors checkpoint shards: 100% Completed",
        "Loading weights took",
        "Available KV cache memory:",
        "GPU KV cache size:",
        "Graph capturing finished in",
        "init engine (profile, create kv cache, warmup model) took",
    ):
        assert line in run.log
    assert run.call("GET", "/health") == (200, "")
    assert run.call("GET", "/version") == (200, {"version": "0.32.0"})
    status, models = run.call("GET", "/v1/models")
    assert (status, models["data"][0]["id"], models["data"][0]["root"], models["data"][0]["max_model_len"]) == (
        200,
        "qwen3.5-9b-fp8",
        "Qwen/Qwen3.5-9B",
        4096,
    )
    assert held(gpu, 1) == pytest.approx(0.4 * TOTAL, rel=0.06)
    assert held(gpu, 0) == 0
    run.process.send_signal(signal.SIGTERM)
    assert run.status() == 0
    assert held(gpu, 1) == 0


def test_nothing_listens_before_it_is_ready(start: Any) -> None:
    run = start(CHAT, SIM_LOAD_SECONDS="3")
    run.until("version 0.32.0")
    with pytest.raises(ConnectionRefusedError):
        run.call("GET", "/health")


def test_all_visible_cards_are_used_for_tensor_parallel(start: Any, gpu: Path) -> None:
    uuids = f"{card(1)['uuid']},{card(0)['uuid']}"
    start(CHAT + "tensor-parallel-size: 2\n", NVIDIA_VISIBLE_DEVICES=uuids).ready()
    assert held(gpu, 0) == held(gpu, 1) > 0


# ---------------------------------------------------------------------------------------------- sight
def test_it_reads_numbers_that_nobody_told_it(start: Any) -> None:
    run = start(CHAT).ready()
    rng = random.Random(11)
    for _ in range(10):
        digits = str(rng.randint(1000, 9999))
        assert run.ask("Read the number in this image.", picture.number(rng, digits))["content"] == digits
    first, second = "4821", "9037"
    both = run.ask("Read the number in each image.", picture.number(rng, first), picture.number(rng, second))
    assert both["content"] == f"{first}, {second}"


def test_it_sees_colours_shapes_and_their_order(start: Any) -> None:
    run = start(CHAT).ready()
    rng = random.Random(5)
    for colour in picture.COLOURS:
        shape = rng.choice(picture.SHAPES)
        drawn = picture.coloured_shape(rng, colour, shape)
        assert run.ask("Name the colour and the shape.", drawn)["content"] == f"{colour} {shape}"
        assert run.ask("Name the color of the shape. Answer with one word.", drawn)["content"] == colour
    colours = rng.sample(list(picture.COLOURS), 4)
    frames = [picture.coloured_shape(rng, c, "circle", size=picture.FRAME, paper=picture.GREY) for c in colours]
    film = ",".join(base64.b64encode(f).decode() for f in frames for _ in range(2))
    parts = [
        {"type": "video_url", "video_url": {"url": f"data:video/jpeg;base64,{film}"}},
        {"type": "text", "text": "Name the colors in the video in order."},
    ]
    said = run.ask("", messages=[{"role": "user", "content": parts}])
    assert said["content"] == ", ".join(colours)


# ---------------------------------------------------------------------------------------------- answers
def test_thinking_is_switched_by_the_request(start: Any) -> None:
    run = start(CHAT).ready()
    assert run.ask("What is 3 plus 4?") | {"reasoning": None} == run.ask("What is 3 plus 4?")
    thought = run.ask("What is 3 plus 4?", chat_template_kwargs={"enable_thinking": True}, max_tokens=500)
    assert thought["content"] == "7"
    assert thought["reasoning"]
    short = run.ask("What is 3 plus 4?", chat_template_kwargs={}, max_tokens=5)
    assert (short["content"], short["finish"]) == (None, "length")


TOOL = {
    "type": "function",
    "function": {
        "name": "report_number",
        "parameters": {"type": "object", "properties": {"number": {"type": "string"}}, "required": ["number"]},
    },
}


def test_tools_and_schemas(start: Any) -> None:
    run = start(CHAT).ready()
    drawn = picture.number(random.Random(3), "7316")
    call = run.ask("Read the number and call the tool with it.", drawn, tools=[TOOL], tool_choice="auto")
    assert call["tool_calls"][0]["function"] == {"name": "report_number", "arguments": '{"number": "7316"}'}
    assert call["finish"] == "tool_calls"
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    said = run.ask("What is 3 plus 4? Answer as JSON with the key sum.", response_format=form)
    assert json.loads(said["content"]) == {"sum": 7}


def test_streams_carry_the_same_answer(start: Any) -> None:
    run = start(CHAT).ready()
    body = {"messages": [{"role": "user", "content": "What is 3 plus 4?"}], "stream": True}
    status, text = run.call("POST", "/v1/chat/completions", body)
    assert status == 200
    lines = [line[6:] for line in text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    deltas = [json.loads(line)["choices"][0]["delta"] for line in lines[:-1]]
    assert "".join(delta.get("content", "") for delta in deltas) == "7"
    assert "".join(delta.get("reasoning", "") for delta in deltas)


def shows(url: str) -> dict[str, Any]:
    """A request with one picture."""
    return {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]}


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"model": "nope"}, 404, "The model `nope` does not exist. Valid aliases: qwen3.5-9b-fp8."),
        ({"messages": [{"role": "user", "content": "word " * 5000}]}, 400, "maximum context length is 4096 tokens"),
        ({"max_tokens": 4096}, 400, "you requested 4096 output tokens"),
        (shows("data:image/png;base64,AAAA"), 400, "Failed to load image: cannot identify image file"),
        (shows("http://images.example/x.jpg"), 500, "Cannot connect to host images.example"),
    ],
)
def test_errors_have_the_real_bodies(start: Any, body: dict[str, Any], status: int, text: str) -> None:
    run = start(CHAT).ready()
    body = {"messages": [{"role": "user", "content": "Hello"}], **body}
    got, answer = run.call("POST", "/v1/chat/completions", body)
    assert got == status
    assert text in answer["error"]["message"]
    assert answer["error"]["code"] == status


def test_more_pictures_than_allowed_are_refused(start: Any) -> None:
    run = start(CHAT).ready()
    url = f"data:image/png;base64,{base64.b64encode(picture.number(random.Random(1), '12')).decode()}"
    parts = [{"type": "image_url", "image_url": {"url": url}}] * 4
    status, answer = run.call("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": parts}]})
    assert (status, answer["error"]["message"]) == (400, "At most 3 image(s) may be provided in one prompt.")


def test_the_key_guards_the_api_but_not_its_health(start: Any) -> None:
    run = start(CHAT, VLLM_API_KEY="secret").ready()
    assert run.call("GET", "/v1/models") == (401, {"error": "Unauthorized"})
    assert run.call("GET", "/health")[0] == 200
    assert run.call("GET", "/v1/models", authorization="Bearer secret")[0] == 200
    assert "secret" not in run.log


def test_pooling_tasks(start: Any) -> None:
    small = "gpu-memory-utilization: 0.1\nmax-model-len: 512\n"
    embed = start(f"model: Qwen/Qwen3-Embedding-0.6B\n{small}").ready()
    texts = ["The cat sleeps on the warm sofa.", "A cat is sleeping on the sofa.", "Interest rates rose in March."]
    _, answer = embed.call("POST", "/v1/embeddings", {"input": texts})
    one, two, other = (entry["embedding"] for entry in answer["data"])
    assert sum(a * b for a, b in zip(one, two)) > 0.5 > abs(sum(a * b for a, b in zip(one, other)))
    assert embed.call("POST", "/v1/chat/completions", {})[0] == 404

    rerank = start(f"model: Qwen/Qwen3-Reranker-0.6B\n{small}").ready()
    documents = ["A spider has eight legs.", "Vienna is the capital of Austria."]
    body = {"query": "What is the capital of Austria?", "documents": documents}
    for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
        assert [r["index"] for r in rerank.call("POST", path, body)[1]["results"]] == [1, 0]

    reward = start(f"model: Skywork/Reward-V2\n{small}").ready()
    good, bad = "The capital of Austria is Vienna.", "No idea, go away. Perhaps banana banana."
    rows = reward.call("POST", "/pooling", {"input": [good, bad]})[1]["data"]
    assert rows[0]["data"][0] > rows[1]["data"][0]


# ---------------------------------------------------------------------------------------------- options
@pytest.mark.parametrize(
    ("config", "argv", "status", "text"),
    [
        ("no_such_flag: true\n", (), 2, "vllm: error: unrecognized arguments: --no-such-flag"),
        ("", ("--max-modle-len", "5"), 2, "vllm: error: unrecognized arguments: --max-modle-len"),
        ("dtype: bf16\n", (), 2, "argument --dtype: invalid choice: 'bf16' (choose from"),
        ("max-num-seqs: 8.0\n", (), 2, "argument --max-num-seqs: invalid"),
        ("tool-call-parser: qwen3_xlm\nenable-auto-tool-choice: true\n", (), 1, "invalid tool call parser: qwen3_xlm"),
        ("enable-auto-tool-choice: true\n", (), 1, "--enable-auto-tool-choice requires --tool-call-parser"),
        ("reasoning-parser: qwen33\n", (), 1, "Reasoning parser 'qwen33' not found. Available parsers:"),
        ("max-model-len: 400000\n", (), 1, "User-specified max_model_len (400000) is greater than the derived"),
        ("gpu-memory-utilization: 1.5\n", (), 1, "Input should be less than or equal to 1"),
        ("a: b: c\n", (), 1, "yaml.scanner.ScannerError"),
    ],
)
def test_wrong_options_end_it_with_the_real_words(
    start: Any, config: str, argv: tuple[str, ...], status: int, text: str
) -> None:
    run = start(config, *argv)
    assert run.status() == status
    assert text in run.log


def test_traps_of_the_configuration_file(start: Any) -> None:
    run = start('enable_prefix_caching: false\nmax_model: 4k\ngpu_mem: 0.3\ntrust-remote-code: "false"\n').ready()
    assert "'enable_prefix_caching'" not in run.log
    assert "'max_model_len': 4000" in run.log
    assert "'gpu_memory_utilization': 0.3" in run.log
    assert run.call("GET", "/v1/models")[1]["data"][0]["id"] == "false"


# ---------------------------------------------------------------------------------------------- memory
def test_the_share_must_be_free_at_start(start: Any) -> None:
    start(CHAT).ready()
    second = start(CHAT.replace("0.4", "0.7"))
    assert second.status() == 1
    assert "Free memory on device cuda:0 (9." in second.log
    assert "is less than desired GPU memory utilization (0.7, 10.71 GiB)" in second.log
    assert "Engine core initialization failed. See root cause above." in second.log


def test_a_killed_engine_frees_its_memory(start: Any) -> None:
    first = start(CHAT.replace("0.4", "0.7")).ready()
    first.process.kill()
    first.process.wait()
    start(CHAT.replace("0.4", "0.7")).ready()


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({"SIM_FLOOR_MIB": "9000"}, "No available memory for the cache blocks"),
        ({"SIM_WEIGHTS_MIB": "9000"}, "No available memory for the cache blocks"),
        ({"SIM_KV_KIB_PER_TOKEN": "2000"}, "the estimated maximum model length is "),
        ({"NVIDIA_VISIBLE_DEVICES": "void"}, "RuntimeError: No CUDA GPUs are available"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-1"}, "invalid literal for int() with base 10: 'GPU-1'"),
    ],
)
def test_what_does_not_fit_does_not_start(start: Any, environment: dict[str, str], text: str) -> None:
    run = start(CHAT, **environment)
    assert run.status() == 1
    assert text in run.log


def test_an_absolute_kv_cache_is_taken_as_it_is(start: Any, gpu: Path) -> None:
    start(CHAT + "kv-cache-memory-bytes: 1073741824\n", SIM_WEIGHTS_MIB="2000").ready()
    assert 3000 < held(gpu, 1) < 3500


def test_more_ranks_than_cards(start: Any) -> None:
    run = start(CHAT + "tensor-parallel-size: 2\n")
    assert run.status() == 1
    assert "world_size (2) is less than than max local gpu count (1)" in run.log


def kv_tokens(log: str) -> int:
    return int(log.partition("GPU KV cache size: ")[2].partition(" tokens")[0].replace(",", ""))


def test_engines_that_start_together_mismeasure_each_other(start: Any) -> None:
    alone = start(CHAT).ready()
    whole = kv_tokens(alone.log)
    alone.process.send_signal(signal.SIGTERM)
    alone.status()
    pair = [start(CHAT, SIM_LOAD_SECONDS="1.5") for _ in range(2)]
    for run in pair:
        run.process.wait(20) if "Traceback" in run.log else run.until("KV cache", 20)
        time.sleep(0.3)
    logs = [run.log for run in pair]
    crippled = [kv_tokens(log) < 0.8 * whole if "KV cache size" in log else "ValueError" in log for log in logs]
    assert any(crippled), logs


# ---------------------------------------------------------------------------------------------- faults
@pytest.mark.parametrize(
    ("fault", "status", "text"),
    [
        ("crash_at=config", 1, "Transformers does not recognize this architecture"),
        ("crash_at=weights", 1, "SafetensorError: Error while deserializing header"),
        ("crash_at=graphs", 1, "torch.OutOfMemoryError: CUDA out of memory."),
        ("restart_loop", 1, "Engine core initialization failed"),
        ("oom_killed", 137, "Starting to load model"),
        ("race", 1, "AssertionError: Error in memory profiling. Initial free memory"),
        ("kv_small", 1, "To serve at least one request with the model's max seq len (4096)"),
        ("disk_full", 1, "OSError: [Errno 28] No space left on device"),
        ("port_taken", 1, "OSError: [Errno 98] Address already in use"),
        ("no_such_fault", 64, "unknown fault 'no_such_fault'"),
    ],
)
def test_faults_that_end_the_start(start: Any, fault: str, status: int, text: str) -> None:
    run = start(CHAT, SIM_FAULT=fault)
    assert run.status() == status
    assert text in run.log


def test_last_words_are_anything_one_wants(start: Any) -> None:
    run = start(CHAT, SIM_FAULT="last_words", SIM_LAST_WORDS="OSError: You are trying to access a gated repo.")
    assert run.status() == 1
    assert "ERROR" in next(line for line in run.log.splitlines() if "gated repo" in line)


def test_a_fault_asked_for_once_is_gone_at_the_next_start(start: Any) -> None:
    assert start(CHAT, SIM_FAULT="once:race").status() == 1
    start(CHAT, SIM_FAULT="once:race").ready()


def test_it_dies_at_the_first_request_with_status_0(start: Any) -> None:
    run = start(CHAT, SIM_FAULT="exit0").ready()
    assert run.call("GET", "/health")[0] == 200
    status, answer = run.call("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]})
    assert (status, answer["error"]["type"]) == (500, "InternalServerError")
    assert run.status() == 0
    assert "EngineDeadError" in run.log


@pytest.mark.parametrize(
    ("fault", "content", "reasoning", "finish"),
    [
        ("garbage", "!" * 120, None, "length"),
        ("mojibake", "�" * 120, None, "length"),
        ("empty_content", None, "The user asks", "stop"),
        ("empty_answer", "", None, "stop"),
        ("blind", "1234", None, "stop"),
    ],
)
def test_faults_of_the_answer_change_while_it_runs(
    start: Any, gpu: Path, fault: str, content: Optional[str], reasoning: Optional[str], finish: str
) -> None:
    run = start(CHAT).ready()
    drawn = picture.number(random.Random(2), "5678")
    switch = gpu / "faults" / "qwen3.5-9b-fp8"
    switch.write_text(fault + "\n")
    said = run.ask("Read the number in this image.", drawn)
    assert (said["content"], said["finish"]) == (content, finish)
    assert (said["reasoning"] or "")[:13] == (reasoning or "")
    switch.unlink()
    assert run.ask("Read the number in this image.", drawn)["content"] == "5678"


def test_faults_of_the_server(start: Any, gpu: Path) -> None:
    run = start(CHAT, SIM_CONTROL="1").ready()

    def fault(name: str) -> None:
        assert run.call("POST", "/sim/fault", {"fault": name})[0] == 200

    hello = {"messages": [{"role": "user", "content": "Hello"}]}
    fault("dead_engine")
    assert run.call("GET", "/health")[0] == 200
    assert "EngineCore encountered an issue" in run.call("POST", "/v1/chat/completions", hello)[1]["error"]["message"]
    fault("wrong_model")
    assert run.call("GET", "/v1/models")[1]["data"][0]["id"] == "some-other-model"
    assert run.call("POST", "/v1/chat/completions", {"model": "qwen3.5-9b-fp8", **hello})[0] == 404
    fault("no_chat_template")
    assert (
        "default chat template is no longer allowed"
        in run.call("POST", "/v1/chat/completions", hello)[1]["error"]["message"]
    )
    fault("unhealthy")
    assert run.call("GET", "/health")[0] == 503
    fault("tool_call_lost")
    lost = run.ask("Call the tool with the number 77.", tools=[TOOL])
    assert "tool_calls" not in lost
    assert "<tool_call>" in lost["content"]
    fault("hang")
    assert run.call("GET", "/health")[0] == 200
    connection = http.client.HTTPConnection("127.0.0.1", run.port, timeout=0.5)
    connection.request("POST", "/v1/chat/completions", json.dumps(hello))
    with pytest.raises(TimeoutError):
        connection.getresponse()
    connection.close()


def test_the_control_route_is_closed_unless_asked_for(start: Any) -> None:
    assert start(CHAT).ready().call("POST", "/sim/fault", {"fault": "hang"})[0] == 404
