# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated engine's HTTP side: vLLM's routes, bodies and errors."""

from __future__ import annotations

import base64
import binascii
import json
import re
import threading
import time
import uuid
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Iterator, Optional

import mind
from sight import NotAPicture, Scene, look

GENERATE = ("/v1/chat/completions", "/v1/completions", "/tokenize")
POOLING = {
    "embed": ("/v1/embeddings", "/pooling"),
    "score": ("/rerank", "/v1/rerank", "/v2/rerank", "/score", "/v1/score", "/classify", "/pooling"),
    "classify": ("/classify", "/pooling"),
    "reward": ("/pooling", "/classify"),
}
OPEN = ("/health", "/ping", "/version", "/load", "/metrics", "/v1/models")
IMAGE_CELL = 32  # pixels of one side that become one token


class Refused(Exception):
    """A request the engine answers with an error."""

    def __init__(self, status: int, message: str, param: Optional[str] = None, kind: str = "") -> None:
        super().__init__(message)
        names = {400: "BadRequestError", 404: "NotFoundError", 500: "InternalServerError"}
        self.status = status
        self.body = {"error": {"message": message, "type": kind or names[status], "param": param, "code": status}}


class EngineDied(Exception):
    """The engine core dies at this request and the server with it."""


class Server:
    """Owns the socket and the counters; ``Handler`` does one request."""

    def __init__(self, settings: Any, faults: Any, log: Any, stop: Callable[[int], Any]) -> None:
        self.settings, self.faults, self.log, self.stop = settings, faults, log, stop
        self.running = 0
        self.counts = {"prompt_tokens": 0, "generation_tokens": 0, "request_success": 0}
        self.lock = threading.Lock()
        server = self

        class Handler(_Handler):
            owner = server

        # Bound early, listening late: before that a client is refused, as by the real engine.
        self.http = ThreadingHTTPServer((settings.host, settings.port), Handler, bind_and_activate=False)
        self.http.daemon_threads = True
        self.http.request_queue_size = 128

    def bind(self) -> None:
        self.http.server_bind()

    def open(self) -> None:
        self.http.server_activate()

    def serve_forever(self) -> None:
        threading.Thread(target=self._report, daemon=True).start()
        self.http.serve_forever(poll_interval=0.2)

    def routes(self) -> list[tuple[str, str]]:
        return [(path, "GET") for path in OPEN] + [(path, "POST") for path in self.posts()]

    def posts(self) -> tuple[str, ...]:
        return GENERATE if self.settings.task == "generate" else POOLING.get(self.settings.task, ())

    def names(self) -> list[str]:
        return ["some-other-model"] if self.faults.has("wrong_model") else self.settings.names

    def _report(self) -> None:
        last = dict(self.counts)
        while True:
            time.sleep(10)
            now = dict(self.counts)
            if now != last or self.running:
                prompt, made = ((now[k] - last[k]) / 10 for k in ("prompt_tokens", "generation_tokens"))
                if self.faults.has("hang"):
                    prompt = made = 0.0
                self.log.api(
                    "loggers.py:335",
                    f"Engine 000: Avg prompt throughput: {prompt:.1f} tokens/s, Avg generation throughput: {made:.1f} "
                    f"tokens/s, Running: 0 reqs, Waiting: {self.running} reqs, GPU KV cache usage: 0.0%, "
                    "Prefix cache hit rate: 0.0%",
                )
            last = now


class _Handler(BaseHTTPRequestHandler):
    owner: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "uvicorn", ""

    # ------------------------------------------------------------------ plumbing
    def log_message(self, *_: Any) -> None:
        pass

    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        status = HTTPStatus(int(code))
        host, port = self.client_address[:2]
        self.owner.log.bare(
            f'INFO:     {host}:{port} - "{self.command} {self.path} HTTP/1.1" {status.value} {status.phrase}'
        )

    def send(self, status: int, body: Any, kind: str = "application/json") -> None:
        data = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def allowed(self) -> bool:
        keys = self.owner.settings.api_keys
        given = self.headers.get("authorization", "")
        return not keys or not self.path.startswith("/v1") or given in [f"Bearer {key}" for key in keys]

    def do_GET(self) -> None:
        path, owner = self.path.partition("?")[0], self.owner
        if not self.allowed():
            self.send(401, {"error": "Unauthorized"})
        elif path in ("/health", "/ping"):
            self.send(503 if owner.faults.has("unhealthy") else 200, b"")
        elif path == "/version":
            self.send(200, {"version": owner.settings.version})
        elif path == "/load":
            self.send(200, {"server_load": owner.running})
        elif path == "/metrics":
            self.send(200, self.metrics().encode(), "text/plain; version=0.0.4; charset=utf-8")
        elif path == "/v1/models":
            self.send(200, {"object": "list", "data": [self.card(name) for name in owner.names()]})
        else:
            self.send(404, {"detail": "Not Found"})

    do_HEAD = do_GET

    def do_POST(self) -> None:
        owner = self.owner
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = self.path.partition("?")[0]
        if not self.allowed():
            return self.send(401, {"error": "Unauthorized"})
        if path == "/sim/fault" and owner.settings.environment.get("SIM_CONTROL") == "1":
            owner.faults.live = json.loads(raw or b"{}").get("fault", "")
            return self.send(200, {"faults": owner.faults.now()})
        if path == "/ping":
            return self.send(200, b"")
        if path not in owner.posts():
            return self.send(404, {"detail": "Not Found"})
        with owner.lock:
            owner.running += 1
        try:
            self.serve(path, raw)
        except Refused as refused:
            if refused.status == 404:
                error = refused.body["error"]
                owner.log.api(
                    "serving.py:274", f"Error with model error=ErrorInfo(message={error['message']!r})", "ERROR"
                )
            self.send(refused.status, refused.body)
        except EngineDied:
            self.die()
        finally:
            with owner.lock:
                owner.running -= 1

    def serve(self, path: str, raw: bytes) -> None:
        try:
            body = json.loads(raw)
            if not isinstance(body, dict):
                raise ValueError("not an object")
        except ValueError as error:
            raise Refused(
                400, f"[{{'type': 'json_invalid', 'msg': 'JSON decode error', 'ctx': {str(error)!r}}}]"
            ) from None
        model, names = body.get("model"), self.owner.names()
        if model and model not in names:
            raise Refused(404, f"The model `{model}` does not exist. Valid aliases: {', '.join(names)}.", "model")
        faults = self.owner.faults
        while faults.has("hang"):
            time.sleep(0.2)
        if faults.has("exit0"):
            raise EngineDied
        if faults.has("dead_engine"):
            self.owner.log.api(
                "async_llm.py:906",
                "AsyncLLM output_handler failed.\nvllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an "
                "issue. See stack trace (above) for the root cause.",
                "ERROR",
            )
            raise Refused(500, "EngineCore encountered an issue. See stack trace (above) for the root cause.")
        if path == "/v1/chat/completions":
            self.chat(body)
        elif path == "/v1/completions":
            self.complete(body)
        elif path == "/tokenize":
            count = mind.tokens(str(body.get("prompt", "")))
            self.send(
                200, {"count": count, "max_model_len": self.owner.settings.max_model_len, "tokens": [*range(count)]}
            )
        else:
            self.pool(path, body)

    def die(self) -> None:
        """As the real engine does when a kernel fails at the first request: 500, farewell, exit status 0."""
        log = self.owner.log
        log.worker("multiproc_executor.py:1063", "RuntimeError: Unexpected head dim size, 32", "ERROR")
        log.core("core.py:1512", "EngineCore encountered a fatal error.\nTraceback (most recent call last):", "ERROR")
        log.core(
            "core.py:1512",
            "RuntimeError: Worker failed with error 'Unexpected head dim size, 32', please check the stack trace above "
            "for the root cause",
            "ERROR",
        )
        issue = "EngineCore encountered an issue. See stack trace (above) for the root cause."
        log.api(
            "async_llm.py:906",
            f"AsyncLLM output_handler failed.\nvllm.v1.engine.exceptions.EngineDeadError: {issue}",
            "ERROR",
        )
        self.send(500, Refused(500, issue).body)
        log.bare("INFO:     Shutting down\nINFO:     Waiting for application shutdown.")
        log.bare(f"INFO:     Application shutdown complete.\nINFO:     Finished server process [{log.pid}]")
        self.owner.stop(0)

    # ------------------------------------------------------------------ small answers
    def card(self, name: str) -> dict[str, Any]:
        settings = self.owner.settings
        now = int(time.time())
        root = "some/other-model" if self.owner.faults.has("wrong_model") else settings.model
        permission = {
            "id": f"modelperm-{uuid.uuid4().hex[:16]}", "object": "model_permission", "created": now,
            "allow_create_engine": False, "allow_sampling": True, "allow_logprobs": True,
            "allow_search_indices": False, "allow_view": True, "allow_fine_tuning": False, "organization": "*",
            "group": None, "is_blocking": False,
        }  # fmt: skip
        return {
            "id": name, "object": "model", "created": now, "owned_by": "vllm", "root": root, "parent": None,
            "max_model_len": settings.max_model_len, "permission": [permission],
        }  # fmt: skip

    def metrics(self) -> str:
        owner = self.owner
        label = f'{{engine="0",model_name="{owner.settings.names[0]}"}}'
        waiting = owner.running if owner.faults.has("hang") else 0
        return "".join(
            f"# TYPE vllm:{name} {kind}\nvllm:{name}{label} {value}\n"
            for name, kind, value in (
                ("num_requests_running", "gauge", float(owner.running - waiting)),
                ("num_requests_waiting", "gauge", float(waiting)),
                ("kv_cache_usage_perc", "gauge", 0.0),
                ("prompt_tokens_total", "counter", float(owner.counts["prompt_tokens"])),
                ("generation_tokens_total", "counter", float(owner.counts["generation_tokens"])),
                ("request_success_total", "counter", float(owner.counts["request_success"])),
            )
        )

    # ------------------------------------------------------------------ chat
    def chat(self, body: dict[str, Any]) -> None:
        settings, faults = self.owner.settings, self.owner.faults
        given = settings.given
        if faults.has("no_chat_template"):
            raise Refused(
                400,
                "As of transformers v4.44, default chat template is no longer allowed, so you must provide a chat "
                "template if the tokenizer does not define one.",
            )
        if faults.has("no_tokenizer"):
            raise Refused(400, "The decoder prompt cannot be empty")
        tools, choice = body.get("tools") or [], body.get("tool_choice") or ("auto" if body.get("tools") else "none")
        if tools and choice == "auto" and not (given.get("enable_auto_tool_choice") and given.get("tool_call_parser")):
            raise Refused(400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set')
        question, images, videos, spent = self.read(body.get("messages") or [])
        prompt = spent + mind.tokens(question) + 6 + (60 if tools else 0)
        room = self.room(prompt, body.get("max_completion_tokens") or body.get("max_tokens"))
        if faults.has("blind"):
            images = [mind.BLIND] * len(images)
            videos = [[mind.BLIND] * len(film) for film in videos]

        said = self.structured(body, question, images, videos)
        if said is None:
            said = mind.answer(question, images, videos)
        call = self.tool_call(tools, choice, question, images, videos)
        thinking = settings.thinks and self.switch(body)
        thought = mind.thoughts(question, said) if thinking else ""
        parser = given.get("reasoning_parser")
        if parser == "deepseek_r1" and not thinking:
            thought, said = said, ""  # that parser takes everything before an end tag for reasoning
        finish = "stop"
        if faults.has("garbage") or faults.has("mojibake") or (faults.has("vision_garbage") and (images or videos)):
            said = ("�" if faults.has("mojibake") else "!") * min(room, 400)
            thought, call, finish = "", None, "length"
        elif faults.has("empty_content"):
            thought, said, call = mind.thoughts(question, said), "", None
        elif faults.has("empty_answer"):
            thought, said, call = "", "", None
        if thought and not parser:
            said, thought = f"{thought}\n</think>\n\n{said}", ""
        said, thought, finish = _cut(said, thought, room, finish)
        used = mind.tokens(said) + mind.tokens(thought)
        message: dict[str, Any] = {
            "role": "assistant", "content": said or None, "refusal": None, "annotations": None, "audio": None,
            "function_call": None, "reasoning": thought or None,
        }  # fmt: skip
        if not said and not thought:
            message["content"] = ""
        if call and finish != "length":
            if faults.has("tool_call_lost"):
                message["content"] = f"<tool_call>\n{json.dumps(call)}\n</tool_call>"
            else:
                arguments = json.dumps(call["arguments"])
                function = {"name": call["name"], "arguments": arguments}
                message["content"] = None
                message["tool_calls"] = [
                    {"id": f"chatcmpl-tool-{uuid.uuid4().hex[:16]}", "type": "function", "function": function}
                ]
                finish = "tool_calls" if choice in ("auto", "required") else "stop"
                used = mind.tokens(arguments) + 4
        usage = self.account(prompt, used)
        answer = {
            "id": f"chatcmpl-{uuid.uuid4().hex[:16]}", "object": "chat.completion", "created": int(time.time()),
            "model": body.get("model") or settings.names[0],
            "choices": [
                {"index": 0, "message": message, "logprobs": None, "finish_reason": finish, "stop_reason": None,
                 "token_ids": None}
            ],
            "service_tier": None, "system_fingerprint": f"vllm-{settings.version}-51u1a7ed", "usage": usage,
            "prompt_logprobs": None, "prompt_token_ids": None, "kv_transfer_params": None,
        }  # fmt: skip
        if body.get("stream"):
            self.stream(_pieces(answer, bool((body.get("stream_options") or {}).get("include_usage"))))
        else:
            self.send(200, answer)

    def switch(self, body: dict[str, Any]) -> bool:
        """Whether the request lets the model think: the template's switch, on unless told otherwise."""
        default = self.owner.settings.given.get("default_chat_template_kwargs") or {}
        given = body.get("chat_template_kwargs") or {}
        return {"enable_thinking": True, **default, **given}["enable_thinking"] is not False

    def room(self, prompt: int, wanted: Any) -> int:
        limit = self.owner.settings.max_model_len
        if prompt > limit:
            raise Refused(
                400,
                f"This model's maximum context length is {limit} tokens. However, your prompt contains at least "
                f"{prompt} input tokens, which exceeds this limit even without any output tokens. Please reduce the "
                f"length of the input prompt. (parameter=input_tokens, value={prompt})",
                "input_tokens",
            )
        if wanted is None:
            return limit - prompt
        if int(wanted) < 1:
            raise Refused(400, f"max_tokens must be at least 1, got {wanted}.", "max_tokens")
        if prompt + int(wanted) > limit:
            raise Refused(
                400,
                f"This model's maximum context length is {limit} tokens. However, you requested {wanted} output tokens "
                f"and your prompt contains at least {prompt} input tokens, for a total of at least "
                f"{prompt + int(wanted)} tokens. Please reduce the length of the input prompt or the number of "
                f"requested output tokens. (parameter=input_tokens, value={prompt})",
                "input_tokens",
            )
        return int(wanted)

    def account(self, prompt: int, used: int) -> dict[str, Any]:
        with self.owner.lock:
            self.owner.counts["prompt_tokens"] += prompt
            self.owner.counts["generation_tokens"] += used
            self.owner.counts["request_success"] += 1
        return {
            "prompt_tokens": prompt, "total_tokens": prompt + used, "completion_tokens": used,
            "prompt_tokens_details": None, "completion_tokens_details": None,
        }  # fmt: skip

    def read(self, messages: list[Any]) -> tuple[str, list[Scene], list[list[Scene]], int]:
        """Question (the last user's text), pictures and films in order, and the tokens that pictures cost."""
        question, images, videos, spent = "", [], [], 0
        limits = self.owner.settings.given.get("limit_mm_per_prompt") or {}
        for message in messages:
            parts = message.get("content") or ""
            if isinstance(parts, str):
                parts = [{"type": "text", "text": parts}]
            texts = []
            for part in parts:
                kind = part.get("type")
                if kind == "text":
                    texts.append(part.get("text", ""))
                elif kind in ("image_url", "video_url"):
                    modality = kind[:5]
                    if modality not in self.owner.settings.modalities:
                        raise Refused(
                            400, f"{self.owner.settings.model} is not a multimodal model", kind="BadRequestError"
                        )
                    address = part.get(kind)
                    address = address.get("url", "") if isinstance(address, dict) else str(address)
                    scenes = [self.see(frame) for frame in self.fetch(address, modality)]
                    spent += 64 * len(scenes)
                    if modality == "image":
                        images += scenes
                    else:
                        videos.append(scenes)
                else:
                    raise Refused(400, f"Unknown part type: {kind}")
                for modality, count in (("image", len(images)), ("video", len(videos))):
                    most = limits.get(modality)
                    most = most.get("count", 999) if isinstance(most, dict) else most
                    if most is not None and count > most:
                        raise Refused(400, f"At most {most} {modality}(s) may be provided in one prompt.")
            spent += sum(map(mind.tokens, texts)) if message.get("role") != "user" else 0
            if message.get("role") == "user":
                question = "\n".join(texts)
        return question, images, videos, spent

    def fetch(self, address: str, modality: str) -> list[bytes]:
        """The pictures a data URL carries; a film is a list of frames. There is no network here on purpose."""
        match = re.fullmatch(r"data:([\w/+.-]+);base64,(.*)", address, re.S)
        if not match:
            host = re.sub(r"^\w+://([^/]*).*", r"\1", address)
            raise Refused(500, f"Cannot connect to host {host} ssl:default [Name or service not known]")
        texts = match[2].split(",") if modality == "video" else [match[2]]
        if modality == "video" and match[1] != "video/jpeg":
            raise Refused(400, "Could not open video stream")
        try:
            return [base64.b64decode(text, validate=True) for text in texts]
        except binascii.Error as error:
            raise Refused(400, f"Failed to load {modality}: {error}") from None

    def see(self, data: bytes) -> Scene:
        if data.startswith(b"\xff\xd8"):
            return Scene()  # a photograph: this engine has eyes for drawings only
        try:
            return look(data)
        except NotAPicture:
            raise Refused(400, "Failed to load image: cannot identify image file <_io.BytesIO object>") from None

    def structured(
        self, body: dict[str, Any], question: str, images: list[Scene], videos: list[list[Scene]]
    ) -> Optional[str]:
        """The answer when its form is prescribed; None when it is free."""
        form = body.get("response_format") or {}
        outputs = body.get("structured_outputs") or {}
        choices = outputs.get("choice") or body.get("guided_choice")
        if choices:
            free = mind.answer(question, images, videos).lower()
            return next((c for c in choices if str(c).lower() in free), choices[0])
        schema = outputs.get("json") or body.get("guided_json")
        if form.get("type") == "json_schema":
            schema = (form.get("json_schema") or {}).get("schema") or {}
        if schema is None:
            return "{}" if form.get("type") == "json_object" and "json" not in question.lower() else None
        schema = json.loads(schema) if isinstance(schema, str) else schema
        known = mind.facts(question, images, videos, mind.properties(schema))
        return json.dumps(mind.by_schema(schema, known))

    def tool_call(
        self, tools: list[Any], choice: Any, question: str, images: list[Scene], videos: list[list[Scene]]
    ) -> Optional[dict[str, Any]]:
        if not tools or choice == "none":
            return None
        wanted = choice["function"]["name"] if isinstance(choice, dict) else tools[0]["function"]["name"]
        function = next((t["function"] for t in tools if t["function"]["name"] == wanted), tools[0]["function"])
        schema = function.get("parameters") or {}
        known = mind.facts(question, images, videos, mind.properties(schema))
        return {"name": function["name"], "arguments": mind.by_schema({"type": "object", **schema}, known)}

    def complete(self, body: dict[str, Any]) -> None:
        prompt = body.get("prompt") or ""
        texts = prompt if isinstance(prompt, list) and prompt and isinstance(prompt[0], str) else [str(prompt)]
        count = sum(map(mind.tokens, texts))
        room = self.room(count, body.get("max_tokens") or 16)
        choices = []
        for index, text in enumerate(texts):
            said = "!" * room if self.owner.faults.has("garbage") else mind.answer(text, [], [])
            said, _, finish = _cut(said, "", room, "stop")
            choices.append(
                {"index": index, "text": said, "logprobs": None, "finish_reason": finish, "stop_reason": None}
            )
        used = sum(mind.tokens(c["text"]) for c in choices)
        self.send(
            200,
            {
                "id": f"cmpl-{uuid.uuid4().hex[:16]}", "object": "text_completion", "created": int(time.time()),
                "model": body.get("model") or self.owner.settings.names[0], "choices": choices,
                "usage": self.account(count, used),
            },
        )  # fmt: skip

    def stream(self, chunks: Iterator[dict[str, Any]]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for chunk in [*(json.dumps(c, ensure_ascii=False) for c in chunks), "[DONE]"]:
            data = f"data: {chunk}\n\n".encode()
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    # ------------------------------------------------------------------ pooling
    def pool(self, path: str, body: dict[str, Any]) -> None:
        settings = self.owner.settings
        kind = path.rpartition("/")[2]
        data: Any
        texts: list[str] = []
        if kind in ("rerank", "score"):
            query, documents = body.get("query", body.get("text_1", "")), body.get("documents", body.get("text_2", []))
            documents = [documents] if isinstance(documents, str) else documents
            documents = [d.get("text", "") if isinstance(d, dict) else str(d) for d in documents]
            texts = [str(query), *documents]
            scores = [mind.relevance(str(query), text) for text in documents]
        else:
            given = body.get("input", body.get("messages", ""))
            if isinstance(given, list) and given and isinstance(given[0], dict):
                given = " ".join(str(m.get("content")) for m in given)
            texts = [given] if isinstance(given, str) else [str(text) for text in given]
        if not texts:
            raise Refused(400, "The decoder prompt cannot be empty")
        count = 0
        for text in texts:
            self.room(mind.tokens(text) + 2, None)
            count += mind.tokens(text) + 2
        usage = self.account(count, 0)
        head = {"id": f"{kind}-{uuid.uuid4().hex[:16]}", "object": "list", "created": int(time.time()),
                "model": body.get("model") or settings.names[0]}  # fmt: skip
        if self.owner.faults.has("garbage") and kind in ("rerank", "score"):
            scores = [0.5] * len(scores)
        if kind == "rerank":
            order = sorted(range(len(scores)), key=lambda i: -scores[i])[: body.get("top_n") or None]
            results = [
                {"index": i, "document": {"text": texts[i + 1], "multi_modal": None}, "relevance_score": scores[i]}
                for i in order
            ]
            rerank = {
                "id": head["id"],
                "model": head["model"],
                "usage": {"prompt_tokens": count, "total_tokens": count},
            }
            return self.send(200, {**rerank, "results": results})
        if kind == "score":
            data = [{"index": i, "object": "score", "score": score} for i, score in enumerate(scores)]
        elif kind == "embeddings":
            garbled = self.owner.faults.has("garbage")
            vectors = [mind.embed("same" if garbled else text) for text in texts]
            data = [{"index": i, "object": "embedding", "embedding": _packed(v, body)} for i, v in enumerate(vectors)]
        elif kind == "classify":
            data = []
            for i, text in enumerate(texts):
                good = 1 / (1 + 2.718281828 ** -mind.liking(text))
                data.append(
                    {"index": i, "label": f"LABEL_{int(good > 0.5)}", "probs": [1 - good, good], "num_classes": 2}
                )
        elif settings.task == "reward":
            garbled = self.owner.faults.has("garbage")
            data = [
                {"index": i, "object": "pooling", "data": [0.0 if garbled else mind.liking(t)]}
                for i, t in enumerate(texts)
            ]
        else:
            data = [{"index": i, "object": "pooling", "data": [mind.embed(t)]} for i, t in enumerate(texts)]
        self.send(200, {**head, "data": data, "usage": usage})


def _packed(vector: list[float], body: dict[str, Any]) -> Any:
    if body.get("dimensions"):
        vector = vector[: int(body["dimensions"])]
    if body.get("encoding_format") == "base64":
        import struct

        return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
    return vector


def _cut(said: str, thought: str, room: int, finish: str) -> tuple[str, str, str]:
    """Both texts within ``room`` tokens; thinking is spent first."""
    for text in (thought, said):
        words = list(mind.WORDS.finditer(text))
        if len(words) > room:
            cut = text[: words[room - 1].end()] if room else ""
            return ("", cut, "length") if text is thought and thought else (cut, thought, "length")
        room -= len(words)
    return said, thought, finish


def _pieces(answer: dict[str, Any], with_usage: bool) -> Iterator[dict[str, Any]]:
    """A whole answer as the chunks of a stream."""
    choice = answer["choices"][0]
    message = choice["message"]
    head = {
        "id": answer["id"],
        "object": "chat.completion.chunk",
        "created": answer["created"],
        "model": answer["model"],
    }

    def chunk(delta: dict[str, Any], finish: Optional[str] = None) -> dict[str, Any]:
        return {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": ""})
    for name in ("reasoning", "content"):
        for piece in re.findall(r"\s*\S+", message[name] or ""):
            yield chunk({name: piece})
    for index, call in enumerate(message.get("tool_calls") or ()):
        yield chunk({"tool_calls": [{"index": index, **call}]})
    yield chunk({}, choice["finish_reason"])
    if with_usage:
        yield {**head, "choices": [], "usage": answer["usage"]}
