#!/usr/bin/python
# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_smoke
short_description: Ask a served model questions that only a working one answers
version_added: 0.1.0
author: [modelfleet contributors (@modelfleet)]
description:
  - Asks a model server, or a model behind a gateway, and judges the answers. A healthy endpoint whose vision tower is
    noise, whose thinking swallows the answer or whose tool calls come as text is found here and not by its users.
  - Pictures are drawn at run time from a random seed and sent inside the request, so that no answer can be guessed,
    cached or remembered, and no host needs the internet.
  - Without O(url) and without O(stacks) it asks every stack that the inventory places on this host, in one module
    execution.
  - What is asked and what counts as a pass is in docs/questions.md of the collection.
options:
  url: &url
    description: Address of the server as the target reaches it, such as V(http://127.0.0.1:8007).
    type: str
  model: &model
    description: Served model name; at a gateway the name that clients ask for.
    type: str
  task: &task
    description: What the model is for; decides what it is asked.
    type: str
    choices: [chat, embed, rerank, classify, reward]
    default: chat
  modalities: &modalities
    description: What the model takes besides text.
    type: list
    elements: str
    choices: [text, image, video, audio]
    default: [text]
  thinking: &thinking
    description: Whether the model thinks unless it is told not to. It is then asked both ways.
    type: bool
    default: false
  tool_parser: &tool_parser
    description: Whether the server parses tool calls. The model must then call a tool.
    type: bool
    default: false
  structured: &structured
    description: Whether to ask for an answer that follows a JSON schema.
    type: bool
    default: false
  max_model_len: &max_model_len
    description: Context length the server must report. Leave it out at a gateway, which reports none.
    type: int
  images_per_request: &images_per_request
    description: How many pictures the server takes in one request; below V(2) two in one request are not asked about.
    type: int
    default: 2
  untrained: &untrained
    description:
      - Judge only the shape and the consistency of the answers of an embedder, reranker, classifier or reward model.
      - For randomly initialised test models, which cannot know what is related or better.
    type: bool
    default: false
  api_key: &api_key
    description: Key of the server or of the gateway.
    type: str
    default: ""
  questions: &questions
    description: Ask only these, by their codes; V(checks) stands for all of O(checks).
    type: list
    elements: str
    default: []
  checks: &checks
    description: Questions of your own beside the built-in ones.
    type: list
    elements: dict
    default: []
    suboptions:
      ask:
        description: The question.
        type: str
        required: true
      expect:
        description: Groups of words. Every group must match, any word of a group will do.
        type: list
        elements: list
        required: true
      image:
        description: >-
          Picture as a path or an http(s) URL, both read on the controller, or as a data URL. Leave it out for a
          question in text.
        type: str
        default: ""
      thinking:
        description: Whether a thinking model may think about it.
        type: bool
        default: false
      max_tokens:
        description: Upper limit of the answer.
        type: int
        default: 120
  image:
    description: Picture of one check of your own (see O(checks)); needs O(ask) and O(expect).
    type: str
    default: ""
  ask:
    description: Question of one check of your own. Then nothing else is asked unless O(questions) says so.
    type: str
  expect:
    description: Groups of words that the answer to O(ask) must contain. Any word of a group will do.
    type: list
    elements: list
  stacks:
    description: Several servers at once, each with the options above. They are asked side by side.
    type: list
    elements: dict
    suboptions:
      name:
        description: Name in messages and results.
        type: str
        required: true
      url: *url
      model: *model
      task: *task
      modalities: *modalities
      thinking: *thinking
      tool_parser: *tool_parser
      structured: *structured
      max_model_len: *max_model_len
      images_per_request: *images_per_request
      untrained: *untrained
      api_key: *api_key
      questions: *questions
      checks: *checks
  only:
    description: Names of stacks; the others are not asked.
    type: list
    elements: str
    default: []
  seed:
    description: Repeat the pictures of an earlier run. Without it every run draws its own; only that makes it a test.
    type: int
  timeout:
    description: Seconds to wait for one answer.
    type: float
    default: 120
  details:
    description:
      - Return each request, each response and the pictures too. They are large, and a failed task prints all of it.
    type: bool
    default: false
  report_path:
    description:
      - File on the controller that gets the whole result as JSON, requests, responses and pictures included; in check
        mode too. Its name should contain the host's, since every host writes its own.
    type: path
extends_documentation_fragment:
  - modelfleet.inference.attributes
  - modelfleet.inference.attributes.info
notes:
  - Nothing is written on the target, so check mode asks as well.
"""

EXAMPLES = r"""
- name: Ask every model that the inventory places on this host
  modelfleet.inference.vllm_smoke:

- name: Ask one server
  modelfleet.inference.vllm_smoke:
    url: http://127.0.0.1:8007
    model: qwen3.5-9b-fp8
    modalities: [text, image, video]
    thinking: true

- name: Ask about a picture of your own
  modelfleet.inference.vllm_smoke:
    url: http://127.0.0.1:8007
    model: qwen3.5-9b-fp8
    image: http://images.cocodataset.org/val2017/000000039769.jpg
    ask: How many cats and what surface are they on?
    expect: [[two, "2"], [pink]]

- name: Only whether it sees, through the gateway
  modelfleet.inference.vllm_smoke:
    url: http://ana-docker:4000
    model: vision
    api_key: "{{ vault_litellm_master_key }}"
    modalities: [text, image]
    questions: [text, image_number, image_pair]
"""

RETURN = r"""
passed:
  description: Whether every question of every stack was answered right.
  returned: always
  type: bool
  sample: true
seed:
  description: What the pictures were drawn from.
  returned: always
  type: int
  sample: 1804289383
stacks:
  description: One entry for each server that was asked, in their order.
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: Name of the stack, or of the model when one server was asked.
      type: str
      sample: qwen35-vl
    url:
      description: Address that was asked.
      type: str
      sample: http://127.0.0.1:8007
    model:
      description: Served model name.
      type: str
      sample: qwen3.5-9b-fp8
    passed:
      description: Whether every question was answered right.
      type: bool
      sample: false
    code:
      description: V(passed), or the stable code of the diagnosis.
      type: str
      sample: vision_blind
    message:
      description: The diagnosis, with question, expectation and answer.
      type: str
      sample: "The text works (What is 3 plus 5? 8), the pictures do not: ..."
    remedy:
      description: What to change.
      type: str
      sample: Use an engine build that leaves the vision tower out of the quantisation.
    failures:
      description: Codes of all questions that failed, by question.
      type: dict
      sample: {image_number: answer_wrong, image_pair: vision_constant_answer}
    warnings:
      description: What is odd about answers that were right.
      type: list
      elements: str
      sample: []
    seconds:
      description: Time spent waiting for answers.
      type: float
      sample: 2.4
    answers:
      description:
        - Every question with its answer and verdict. With O(details) and in O(report_path) also C(exchanges), every
          request (without keys) and response of it, and C(pictures), the PNG files in base64.
      type: list
      elements: dict
      sample:
        - question: image_number
          code: passed
          passed: true
          severity: passed
          ask: Read the number in this image.
          expected: "4821"
          answer: "4821"
          detail: ""
          remedy: ""
          right: 2
          wrong: 0
          seconds: 0.43
"""

import secrets
from concurrent.futures import ThreadPoolExecutor

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters import asker
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.errors import FleetError
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.verdict import conclude

CHECK = {
    "ask": {"type": "str", "required": True},
    "expect": {"type": "list", "elements": "list", "required": True},
    "image": {"type": "str", "default": ""},
    "thinking": {"type": "bool", "default": False},
    "max_tokens": {"type": "int", "default": 120, "no_log": False},
}
SERVER = {
    "url": {"type": "str"},
    "model": {"type": "str"},
    "task": {"type": "str", "choices": ["chat", "embed", "rerank", "classify", "reward"], "default": "chat"},
    "modalities": {
        "type": "list",
        "elements": "str",
        "choices": ["text", "image", "video", "audio"],
        "default": ["text"],
    },
    "thinking": {"type": "bool", "default": False},
    "tool_parser": {"type": "bool", "default": False},
    "structured": {"type": "bool", "default": False},
    "max_model_len": {"type": "int"},
    "images_per_request": {"type": "int", "default": 2},
    "untrained": {"type": "bool", "default": False},
    "api_key": {"type": "str", "default": "", "no_log": True},
    "questions": {"type": "list", "elements": "str", "default": []},
    "checks": {"type": "list", "elements": "dict", "default": [], "options": CHECK},
}
SIDE_BY_SIDE = 4  # servers at once; each is asked one question at a time


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **SERVER,
            "image": {"type": "str", "default": ""},
            "ask": {"type": "str"},
            "expect": {"type": "list", "elements": "list"},
            "stacks": {
                "type": "list",
                "elements": "dict",
                "options": {"name": {"type": "str", "required": True}, **SERVER},
            },
            "only": {"type": "list", "elements": "str", "default": []},
            "seed": {"type": "int"},
            "timeout": {"type": "float", "default": 120.0},
            # Both are the action plugin's business: it writes the report and shortens what it returns.
            "details": {"type": "bool", "default": False},
            "report_path": {"type": "path"},
        },
        required_together=[("url", "model"), ("ask", "expect")],
        required_one_of=[("url", "stacks")],
        mutually_exclusive=[("url", "stacks")],
        supports_check_mode=True,
    )
    params = module.params
    seed = secrets.randbelow(2**31) if params["seed"] is None else params["seed"]
    stacks = _stacks(params)
    names = [stack["name"] for stack in stacks]
    missing = [name for name in params["only"] if name not in names]
    if missing:
        module.fail_json(msg=f"only: no stack {', '.join(missing)} here; there are: {', '.join(names) or 'none'}.")
    stacks = [stack for stack in stacks if not params["only"] or stack["name"] in params["only"]]
    try:
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            results = list(pool.map(lambda stack: _ask(stack, seed, params["timeout"]), stacks))
    except FleetError as error:
        module.fail_json(msg=str(error), passed=False, seed=seed, stacks=[])
    result = {
        "changed": False,
        "passed": all(each["passed"] for each in results),
        "seed": seed,
        "stacks": results,
    }
    for each in results:
        for warning in each["warnings"]:
            module.warn(f"{each['name']}: {warning}")
    failed = [each for each in results if not each["passed"]]
    if failed:
        said = [f"{each['name']} ({each['url']}): {each['message']} {each['remedy']}" for each in failed]
        module.fail_json(msg="\n".join(said), **result)
    module.exit_json(msg="; ".join(f"{each['name']}: {each['message']}" for each in results), **result)


def _stacks(params: dict) -> list[dict]:
    if params["stacks"] is not None:
        return params["stacks"]
    one = {"name": params["model"], **{key: params[key] for key in SERVER}}
    if params["ask"]:
        check = {"ask": params["ask"], "expect": params["expect"], "image": params["image"]}
        one["checks"] = [*one["checks"], check]
        one["questions"] = one["questions"] or ["checks"]
    return [one]


def _ask(stack: dict, seed: int, timeout: float) -> dict:
    answers = asker.ask(stack["url"], stack["model"], stack, seed=seed, api_key=stack["api_key"], timeout=timeout)
    return {
        "name": stack["name"],
        "url": stack["url"],
        "model": stack["model"],
        **conclude(answers),
        "seconds": round(sum(answer["seconds"] for answer in answers), 3),
        "answers": answers,
    }


if __name__ == "__main__":
    main()
