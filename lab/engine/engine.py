#!/usr/bin/env python3
# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated engine: what ``vllm serve`` looks like from outside, without a GPU, without a model.

It takes the same options, writes the same log lines, holds memory on the simulated card, answers over the same HTTP
routes, looks at the pixels it is sent, and has any trouble that is asked for. README.md is its manual.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, Optional

import account
import options
from faults import Faults, UnknownFault
from serving import Server

GIB = 1024  # MiB
DEFAULT_SHARE = 0.92  # the real engine's default of gpu_memory_utilization
ROOT_CAUSE = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"


def gib(mib: float) -> str:
    return f"{mib / GIB:.2f}"


# ---------------------------------------------------------------------------------------------- log
class Log:
    """Lines in the real engine's two forms: with a process prefix, or bare as uvicorn and Python write them."""

    def __init__(self) -> None:
        self.pid = os.getpid()

    def bare(self, text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def line(self, who: str, level: str, place: str, text: str) -> None:
        # The engine's and the worker's process numbers; in a container the real ones are small as well.
        pid = self.pid + {"APIServer": 0, "EngineCore": 24, "Worker": 41}[who]
        head = f"({who} pid={pid}) {level} {time.strftime('%m-%d %H:%M:%S')} [{place}] "
        self.bare("\n".join(head + part for part in text.splitlines() or [""]))

    def api(self, place: str, text: str, level: str = "INFO") -> None:
        self.line("APIServer", level, place, text)

    def core(self, place: str, text: str, level: str = "INFO") -> None:
        self.line("EngineCore", level, place, text)

    def worker(self, place: str, text: str, level: str = "INFO") -> None:
        self.line("Worker", level, place, text)


class StartFailed(Exception):
    """The start ends here; ``lines`` are the engine's last words before the wrapper's."""

    def __init__(self, error: str, *, in_engine: bool = True, status: int = 1) -> None:
        super().__init__(error)
        self.in_engine, self.status = in_engine, status


# ---------------------------------------------------------------------------------------------- what was asked for
@dataclass
class Settings:
    """The options as the real engine would use them, and the simulation's own knobs (SIM_*)."""

    given: dict[str, Any]
    version: str
    environment: dict[str, str]
    model: str = ""
    names: list[str] = field(default_factory=list)
    port: int = 8000
    host: str = ""
    share: float = DEFAULT_SHARE
    kv_bytes: Optional[int] = None
    ranks: int = 1
    max_model_len: int = 0
    api_keys: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        given = self.given
        self.model = given.get("model") or "Qwen/Qwen3-0.6B"
        self.names = given.get("served_model_name") or [self.model]
        self.port = given.get("port", 8000)
        self.host = given.get("host") or ""
        self.share = given.get("gpu_memory_utilization", DEFAULT_SHARE)
        self.kv_bytes = given.get("kv_cache_memory_bytes")
        self.ranks = given.get("tensor_parallel_size", 1) * given.get("pipeline_parallel_size", 1)
        self.max_model_len = given.get("max_model_len", 0)
        keys = given.get("api_key") or self.environment.get("VLLM_API_KEY") or []
        self.api_keys = keys if isinstance(keys, list) else [keys]

    def knob(self, name: str, default: float) -> float:
        return float(self.environment.get(f"SIM_{name}") or default)

    @property
    def model_limit(self) -> int:
        return int(self.knob("MODEL_LEN", 262144))

    @property
    def task(self) -> str:
        """generate, embed, score, classify or reward: by SIM_TASK, or by a word in the model's name."""
        chosen = self.environment.get("SIM_TASK")
        if chosen:
            return {"chat": "generate", "rerank": "score"}.get(chosen, chosen)
        low = f"{self.model} {self.names[0]}".lower()
        for word, task in (("rerank", "score"), ("reward", "reward"), ("classif", "classify"), ("embed", "embed")):
            if word in low:
                return task
        return "generate"

    @property
    def modalities(self) -> list[str]:
        return (self.environment.get("SIM_MODALITIES") or "text,image,video").split(",")

    @property
    def thinks(self) -> bool:
        return bool(self.given.get("reasoning_parser")) or self.environment.get("SIM_THINKING") == "1"


# ---------------------------------------------------------------------------------------------- start
class Engine:
    def __init__(self, settings: Settings, folder: Path, log: Log) -> None:
        self.settings, self.folder, self.log = settings, folder, log
        names = [settings.environment.get("SIM_NAME", ""), *settings.names, os.uname().nodename]
        self.faults = Faults(folder, names, settings.environment)
        self.seconds = settings.knob("LOAD_SECONDS", 2)
        self.claims: list[account.Claim] = []
        self.began = time.monotonic()
        self.kv_tokens = 0

    def start(self) -> Server:
        """Everything up to and including "Application startup complete." Raises StartFailed."""
        log, settings = self.log, self.settings
        self.pause(0.15)
        self.banner()
        server = Server(settings, self.faults, log, self.stop)
        self.bind(server)
        self.configuration()
        self.pause(0.10)
        self.trouble("config")
        log.core(
            "core.py:133", f"Initializing a V1 LLM engine (v{settings.version}) with config: {self._configuration()}"
        )
        cards = self.visible_cards()
        log.worker(
            "parallel_state.py:1906",
            f"world_size={settings.ranks} rank=0 local_rank=0 distributed_init_method=tcp://127.0.0.1:45137 "
            "backend=nccl",
        )
        self.trouble("engine")
        self.pause(0.05)
        if cards:
            self.load_on(cards)
        else:
            self.load_on_cpu()
        self.trouble("serving")
        log.core("core.py:402", f"init engine (profile, create kv cache, warmup model) took {self.seconds / 2:.2f} s")
        tasks = {"generate": "'generate'", "embed": "'embed', 'token_embed'", "score": "'score', 'classify'"}
        log.api("entry.py:136", f"Supported tasks: [{tasks.get(settings.task, repr(settings.task))}]")
        if settings.given.get("enable_auto_tool_choice"):
            log.api("parser_manager.py:38", '"auto" tool choice has been enabled.')
        log.api("entry.py:140", f"Starting vLLM server on http://{settings.host or '0.0.0.0'}:{settings.port}")
        log.api("launcher.py:186", "Available routes are:")
        for path, methods in server.routes():
            log.api("launcher.py:195", f"Route: {path}, Methods: {methods}")
        log.bare(f"INFO:     Started server process [{log.pid}]")
        log.bare("INFO:     Waiting for application startup.")
        server.open()
        log.bare("INFO:     Application startup complete.")
        return server

    def pause(self, part: float) -> None:
        """Spend this part of the load time."""
        factor = self.settings.knob("SLOW_FACTOR", 10) if self.faults.has("slow") else 1
        until = time.monotonic() + self.seconds * part * factor
        while time.monotonic() < until:
            time.sleep(min(0.1, max(0.0, until - time.monotonic())))
        while self.faults.has("stuck"):
            time.sleep(0.2)

    def trouble(self, phase: str) -> None:
        """The faults that end a start, each at the place where it really happens. Raises StartFailed."""
        faults = self.faults.now()
        wanted = {
            "weights": ("disk_full", "restart_loop", "last_words", "oom_killed"),
            "profiling": ("race",),
            "kv_cache": ("kv_small",),
        }.get(phase, ())
        hit = [name for name in wanted if name in faults]
        if faults.get("crash_at") == phase:
            hit.append("crash_at")
        if not hit:
            return
        name = hit[0]
        self.faults.spend(name)
        if name == "oom_killed":
            out_of_host_memory()
        if name == "disk_full":
            raise StartFailed(
                '  File "<site-packages>/huggingface_hub/file_download.py", line 1745, in xet_get\n'
                "OSError: [Errno 28] No space left on device"
            )
        if name == "last_words":
            raise StartFailed(self.settings.environment.get("SIM_LAST_WORDS", "RuntimeError: unknown"))
        if name == "race":
            total = self.settings.knob("RACE_MIB", 84930)
            raise StartFailed(_grown(total, total * 1.087))
        if name == "kv_small":
            needed = self.settings.max_model_len * self.kv_kib / 1024 if self.settings.max_model_len > 0 else 24 * GIB
            raise StartFailed(self._too_long(needed, needed * 0.1325))
        raise StartFailed(_last_words(phase))

    def banner(self) -> None:
        log, settings = self.log, self.settings
        for text in (
            "",
            "       █     █     █▄   ▄█",
            f" ▄▄ ▄█ █     █     █ ▀▄▀ █  version {settings.version}",
            f"  █▄█▀ █     █     █     █  model   {settings.model}",
            "   ▀▀  ▀▀▀▀▀ ▀▀▀▀▀ ▀     ▀",
            "",
        ):
            log.api("api_utils.py:347", text)
        shown = {k: "***" if k == "api_key" else v for k, v in settings.given.items()}
        log.api("api_utils.py:286", f"non-default args: {shown}")

    def bind(self, server: Server) -> None:
        """The real engine takes its port before it loads, and listens only when it is ready."""
        try:
            if self.faults.has("port_taken"):
                self.faults.spend("port_taken")
                raise OSError(98, "Address already in use")
            server.bind()
        except OSError as error:
            raise StartFailed(
                f"    sock.bind(addr)\nOSError: [Errno {error.errno}] {error.strerror}", in_engine=False
            ) from None

    def configuration(self) -> None:
        settings, log = self.settings, self.log
        try:
            options.check_parsers(settings.given, settings.version.rpartition(".")[0])
        except (KeyError, TypeError) as error:
            raise StartFailed(f"{type(error).__name__}: {error}", in_engine=False) from None
        if not 0 < settings.share <= 1:
            bound = "less than or equal to 1" if settings.share > 1 else "greater than 0"
            raise StartFailed(
                "pydantic_core._pydantic_core.ValidationError: 1 validation error for CacheConfig\n"
                f"gpu_memory_utilization\n  Input should be {bound} [type=less_than_equal, "
                f"input_value={settings.share}, input_type=float]",
                in_engine=False,
            )
        kind = "Embedding" if settings.task == "embed" else "Reward" if settings.task == "reward" else ""
        architecture = settings.environment.get("SIM_ARCHITECTURE") or (
            f"Simulated{kind}ForConditionalGeneration"
            if "image" in settings.modalities
            else f"Simulated{kind}ForCausalLM"
        )
        log.api("model.py:733", f"Resolved architecture: {architecture}")
        wanted, limit = settings.max_model_len, settings.model_limit
        if wanted > limit and settings.environment.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") != "1":
            raise StartFailed(
                "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
                f"  Value error, User-specified max_model_len ({wanted}) is greater than the derived max_model_len "
                f"(max_position_embeddings={limit}.0 or model_max_length=None in model's config.json). To allow "
                "overriding this maximum, set the env var VLLM_ALLOW_LONG_MAX_MODEL_LEN=1.",
                in_engine=False,
            )
        if wanted <= 0:
            settings.max_model_len = limit if wanted == 0 else 0  # -1: as much as fits, known later
        log.api("model.py:2152", f"Using max model len {settings.max_model_len or limit}")
        log.api(
            "scheduler.py:307",
            "Chunked prefill is enabled with max_num_batched_tokens="
            f"{settings.given.get('max_num_batched_tokens', 8192)}.",
        )
        for name in settings.environment:
            if name in ("VLLM_ATTENTION_BACKEND", "VLLM_USE_V1"):
                log.api("envs.py:1830", f"Unknown vLLM environment variable detected: {name}", "WARNING")

    def _configuration(self) -> str:
        s, given = self.settings, self.settings.given
        return (
            f"model='{s.model}', speculative_config=None, tokenizer='{s.model}', revision={given.get('revision')}, "
            f"trust_remote_code={bool(given.get('trust_remote_code'))}, dtype=torch.bfloat16, "
            f"max_seq_len={s.max_model_len or s.model_limit}, load_format=auto, tensor_parallel_size={s.ranks}, "
            f"quantization={given.get('quantization')}, enforce_eager={bool(given.get('enforce_eager'))}, "
            f"kv_cache_dtype={given.get('kv_cache_dtype', 'auto')}, served_model_name={s.names[0]}, "
            f"enable_prefix_caching={given.get('enable_prefix_caching', True)}"
        )

    def visible_cards(self) -> list[account.Card]:
        """The cards of this engine; none where SIM_DEVICE=cpu. Raises StartFailed."""
        settings = self.settings
        if settings.environment.get("SIM_DEVICE") == "cpu":
            return []
        if not (self.folder / "cards.json").exists():
            raise StartFailed(
                "RuntimeError: Failed to infer device type, please set the environment variable "
                "`VLLM_LOGGING_LEVEL=DEBUG` to turn on verbose logging to help debug the issue.",
                in_engine=False,
            )
        try:
            mine = account.visible(account.cards(self.folder), settings.environment)
        except ValueError as error:
            raise StartFailed(f"ValueError: {error}", in_engine=False) from None
        except LookupError:
            mine = []
        if not mine:
            raise StartFailed("RuntimeError: No CUDA GPUs are available")
        if settings.ranks > len(mine):
            raise StartFailed(
                f"RuntimeError: please ensure that world_size ({settings.ranks}) is less than than max local gpu "
                f"count ({len(mine)})"
            )
        return mine[: settings.ranks]

    @property
    def kv_kib(self) -> float:
        """KiB of KV cache one token takes, over all cards."""
        return self.settings.knob("KV_KIB_PER_TOKEN", 32)

    def load_on(self, cards: list[account.Card]) -> None:
        """Weights, profile, KV cache and graphs on the cards' account, in the real order, with the real checks."""
        settings, log, folder = self.settings, self.log, self.folder
        before = {}
        for number, card in enumerate(cards):
            requested = card.total * settings.share
            before[card] = account.free(folder, card)
            # Asked for with an absolute KV cache too: the real engine checks the share in every case.
            if before[card] < requested:
                raise StartFailed(
                    f"ValueError: Free memory on device cuda:{number} ({gib(before[card])}/{gib(card.total)} GiB) on "
                    f"startup is less than desired GPU memory utilization ({settings.share}, {gib(requested)} GiB). "
                    "Decrease GPU memory utilization or reduce GPU memory used by other processes."
                )
        requested = cards[0].total * settings.share
        floor = settings.knob("FLOOR_MIB", 0)
        weights = int(settings.knob("WEIGHTS_MIB", 0.7 * floor or 0.4 * requested) / len(cards))
        peak = int(min(1024, 0.05 * requested))
        context = int(min(400, 0.02 * requested))
        self.claims = [account.Claim(folder, card, "VLLM::EngineCore") for card in cards]
        self._take(context)

        log.worker("gpu_model_runner.py:5040", f"Starting to load model {settings.model}...")
        log.worker(
            "cuda.py:420",
            "Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN', 'TRITON_ATTN'].",
        )
        shards = max(1, min(4, int(weights / 4096)))
        began = time.monotonic()
        self.trouble("weights")
        for shard in range(shards + 1):
            log.bare(
                f"\nLoading safetensors checkpoint shards: {100 * shard // shards:3d}% Completed | {shard}/{shards} "
                f"[00:{int(time.monotonic() - began):02d}<?, ?it/s]\n"
            )
            if shard < shards:
                self.pause(0.30 / shards)
                self._take(weights // shards + (weights % shards if shard == 0 else 0))
        took = time.monotonic() - began
        log.worker("default_loader.py:501", f"Loading weights took {took:.2f} seconds")
        log.worker("gpu_model_runner.py:5150", f"Model loading took {gib(weights)} GiB memory and {took:.6f} seconds")

        if not settings.given.get("enforce_eager"):
            self.pause(0.10)
            log.worker("monitor.py:48", f"torch.compile took {self.seconds * 0.1:.2f} s in total")
        self.trouble("profiling")
        self._take(peak)
        self.pause(0.10)
        available = float("inf")
        for card in cards:
            now = account.free(folder, card)
            # Peak memory is returned after the profile; what is left missing is all counted as our own.
            now_without_peak = now + peak
            if now_without_peak > before[card]:
                raise StartFailed(_grown(before[card], now_without_peak))
            available = min(available, requested - (before[card] - now))
        self._give(peak)
        if settings.kv_bytes is not None:
            available = settings.kv_bytes / 2**20
            log.worker(
                "gpu_worker.py:669",
                f"Initial free memory {gib(before[cards[0]])} GiB, reserved {gib(available)} GiB memory for KV Cache "
                "as specified by kv_cache_memory_bytes config and skipped memory profiling. This does not respect the "
                "gpu_memory_utilization config.",
            )
        else:
            if self.faults.has("kv_quarter"):
                available *= 0.25
            log.worker("gpu_worker.py:760", f"Available KV cache memory: {gib(available)} GiB")
        if floor and requested < floor and settings.kv_bytes is None:
            available = -1.0
        self.trouble("kv_cache")
        self._kv_cache(available, "GPU", len(cards))
        self._take(max(0, int(available)))
        self.pause(0.05)
        if not settings.given.get("enforce_eager"):
            self.trouble("graphs")
            self.pause(0.15)
            # A real engine's graphs lie partly beyond its share; the account keeps to the share.
            log.worker(
                "gpu_model_runner.py:6582", f"Graph capturing finished in {self.seconds * 0.15:.0f} secs, took 0.31 GiB"
            )

    def load_on_cpu(self) -> None:
        """SIM_DEVICE=cpu: the same phases without a card, for hosts that have no stand-in GPU."""
        self.log.worker("cpu_model_runner.py:68", f"Starting to load model {self.settings.model}...")
        self.trouble("weights")
        self.pause(0.40)
        self.log.worker("default_loader.py:501", f"Loading weights took {self.seconds * 0.4:.2f} seconds")
        self.trouble("profiling")
        self.trouble("kv_cache")
        self.pause(0.20)
        self._kv_cache(self.settings.knob("KV_CACHE_MIB", 8192), "CPU", 1)
        self.trouble("graphs")

    def _kv_cache(self, available: float, kind: str, cards: int) -> None:
        if available <= 0:
            raise StartFailed(
                "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
                "initializing the engine (this flag also controls CPU memory reservation on the CPU backend, despite "
                "its name). See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."
            )
        settings = self.settings
        self.kv_tokens = int(available * cards * 1024 / self.kv_kib) // 16 * 16
        if not settings.max_model_len:
            settings.max_model_len = min(settings.model_limit, self.kv_tokens)
        if self.kv_tokens < settings.max_model_len:
            raise StartFailed(self._too_long(settings.max_model_len * self.kv_kib / 1024 / cards, available))
        self.log.core(
            "kv_cache_utils.py:2327",
            f"{kind} KV cache size: {self.kv_tokens:,} tokens, Maximum concurrency for {settings.max_model_len:,} "
            f"tokens per request: {self.kv_tokens / settings.max_model_len:.2f}x",
        )

    def _too_long(self, needed: float, available: float) -> str:
        fits = int((self.settings.max_model_len or 262144) * available / needed) // 16 * 16
        return (
            f"ValueError: To serve at least one request with the model's max seq len "
            f"({self.settings.max_model_len or 262144}), ({gib(needed)} GiB KV cache is needed, which is larger than "
            f"the available KV cache memory ({gib(available)} GiB). Based on the available memory, the estimated "
            f"maximum model length is {fits}. Try increasing `gpu_memory_utilization` (which also controls CPU memory "
            "on the CPU backend) or decreasing `max_model_len` when initializing the engine. See "
            "https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."
        )

    def _take(self, mib: int) -> None:
        try:
            for claim in self.claims:
                claim.take(mib)
        except account.OutOfMemory:
            card = self.claims[0].card
            raise StartFailed(
                f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {gib(mib)} GiB. GPU 0 has a total "
                f"capacity of {gib(card.total)} GiB of which {gib(account.free(self.folder, card))} GiB is free."
            ) from None

    def _give(self, mib: int) -> None:
        for claim in self.claims:
            claim.give(mib)

    def stop(self, status: int) -> NoReturn:
        """End the process now; its memory on the cards is free again."""
        for claim in self.claims:
            claim.close()
        sys.stdout.flush()
        os._exit(status)


def _grown(before: float, now: float) -> str:
    return (
        f"AssertionError: Error in memory profiling. Initial free memory {gib(before)} GiB, current free memory "
        f"{gib(now)} GiB. This happens when other processes sharing the same container release GPU memory while vLLM "
        "is profiling during initialization. To fix this, ensure consistent GPU memory allocation or isolate vLLM in "
        "its own container."
    )


def _last_words(phase: str) -> str:
    """What a crash in this phase says."""
    return {
        "config": "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n  Value error, "
        "The checkpoint you are trying to load has model type `sim_vl` but Transformers does not recognize this "
        "architecture. This could be because of an issue with the checkpoint, or because your version of "
        "Transformers is out of date.",
        "weights": "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer",
        "profiling": "RuntimeError: size_n = 5472 is not divisible by tile_n_size = 64",
        "kv_cache": "ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (856). Each decode sequence "
        "requires one Mamba cache block, so CUDA graph capture cannot proceed. Please lower max_num_seqs to at most "
        "856 or increase gpu_memory_utilization.",
        "graphs": "torch.OutOfMemoryError: CUDA out of memory.",
    }.get(phase, "RuntimeError: CUDA error: an illegal memory access was encountered")


def out_of_host_memory() -> NoReturn:
    """Be killed for memory: grow to the container's limit, or, without one, end as if killed."""
    hoard = []
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limit = int(Path(path).read_text())
        except (OSError, ValueError):
            continue
        if limit < 8 << 30:
            while True:
                hoard.append(bytearray(b"\1") * (16 << 20))
    os._exit(137)


def fail(engine: Engine, failed: StartFailed) -> NoReturn:
    """The real engine's farewell: the cause with the engine's prefix, then the wrapper's traceback without one."""
    log = engine.log
    text = str(failed)
    if failed.in_engine:
        place = "core.py:1510"
        body = "EngineCore failed to start.\nTraceback (most recent call last):\n"
        body += '  File "<site-packages>/vllm/v1/engine/core.py", line 1478, in run_engine_core\n'
        body += "    engine_core = EngineCoreProc(*args, engine_index=dp_rank, **kwargs)\n" + text
        log.core(place, body, "ERROR")
        text = ROOT_CAUSE
    log.bare("Traceback (most recent call last):")
    log.bare('  File "<venv>/bin/vllm", line 6, in <module>\n    sys.exit(main())\n             ^^^^^^')
    log.bare(text)
    engine.stop(failed.status)


def main(argv: list[str]) -> None:
    environment = dict(os.environ)
    version = environment.get("SIM_VERSION", "0.32.0")
    try:
        given = options.parse(argv, version.rpartition(".")[0])
    except options.BadOptions as bad:
        print(bad, file=sys.stderr)
        sys.exit(2)
    except Exception:  # an unreadable file: the real engine shows Python's own traceback
        traceback.print_exc()
        sys.exit(1)
    engine = Engine(Settings(given, version, environment), Path(environment.get("SIM_GPU_DIR", "/run/lab-gpu")), Log())

    def leave(*_: Any) -> None:
        if engine.faults.has("ignore_sigterm"):
            return
        engine.log.api("launcher.py:254", "[shutdown] API server: shutdown triggered")
        engine.log.bare("INFO:     Shutting down\nINFO:     Application shutdown complete.")
        engine.stop(0)

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, leave)
    try:
        server = engine.start()
    except StartFailed as failed:
        fail(engine, failed)
    except UnknownFault as unknown:
        print(f"simulated engine: {unknown}", file=sys.stderr)
        engine.stop(64)
    server.serve_forever()


if __name__ == "__main__":
    socket.setdefaulttimeout(None)
    main(sys.argv[1:])
