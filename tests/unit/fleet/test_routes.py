# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Routes of the gateway: what a wrong inventory is told, and what a right one becomes."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from pathlib import Path
from typing import Any, Optional

import pytest
import yaml
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import (
    drift,
    gateway_files,
    inventory,
    routes,
)
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.drift import LiveFile
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.errors import ERROR, WARNING
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.gateway_files import (
    GatewaySettings,
    LiveGateway,
    RenderedGateway,
    Told,
)
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.rendered import LABEL_HASH

from .fleets import DIGEST, FLEET, GATEWAYS, GPU_HOSTS, MASTER_KEY, REMOVED, changed, findings_of

FIXTURES = Path(__file__).parents[2] / "fixtures" / "litellm"
GATEWAY = "ana-docker/fleet_gateway"
PLACE = "variables of ana-docker: fleet_gateway"
ML2 = "ana-ml2/fleet_stacks"
SMALL = {
    "source": "Qwen/Qwen3-0.6B",
    "task": "chat",
    "image": "vllm",
    "args": {"max_model_len": 8192},
}
REWARD = {"source": "Skywork/Reward", "task": "reward", "image": "vllm", "args": {"max_model_len": 4096}}
# The small fleet with a second chat model and a reward model in the embedder's place.
WITH_SMALL: dict[str, Any] = {"*/fleet_models/small": SMALL, f"{ML2}/2/model": "small"}
WITH_REWARD: dict[str, Any] = {"*/fleet_models/judge": REWARD, f"{ML2}/2/model": "judge"}


def case(edits: dict[str, Any], code: str, place: str, says: str, severity: str = ERROR) -> Any:
    return pytest.param(list(edits.items()), code, place, says, severity, id=f"{code}-{says}"[:70])


def router(name: str, value: Any, code: str, says: str, below: str = "") -> Any:
    return case({f"{GATEWAY}/settings": {name: value}}, code, f"{PLACE}.settings.{name}{below}", says)


WRONG = [
    # Shape.
    case({GATEWAY: REMOVED}, "missing_variable", PLACE, "master_key"),
    case({GATEWAY: "litellm"}, "wrong_type", PLACE, "image"),
    case({f"{GATEWAY}/image": REMOVED}, "missing_key", f"{PLACE}.image", "pins LiteLLM"),
    case({f"{GATEWAY}/master_key": REMOVED}, "missing_key", f"{PLACE}.master_key", "Vault"),
    case({f"{GATEWAY}/model_list": []}, "unknown_key", f"{PLACE}.model_list", "by themselves"),
    case({f"{GATEWAY}/weights": {}}, "unknown_key", f"{PLACE}.weights", "weight:"),
    case({f"{GATEWAY}/alias": {}}, "unknown_key", f"{PLACE}.alias", "aliases"),
    case({f"{GATEWAY}/port": 0}, "out_of_range", f"{PLACE}.port", "65535"),
    case({f"{GATEWAY}/port": "http"}, "wrong_type", f"{PLACE}.port", "port"),
    case({f"{GATEWAY}/timeout": "abc"}, "wrong_type", f"{PLACE}.timeout", "seconds"),
    case({f"{GATEWAY}/aliases": ["vision"]}, "wrong_type", f"{PLACE}.aliases", "alias: model"),
    case({f"{GATEWAY}/fallbacks": ["qwen-vl"]}, "wrong_type", f"{PLACE}.fallbacks", "model: [other"),
    case({f"{GATEWAY}/keys/0/rpm": 0}, "out_of_range", f"{PLACE}.keys[0].rpm", "requests a minute"),
    case({f"{GATEWAY}/keys/0/name": REMOVED}, "missing_key", f"{PLACE}.keys[0].name", "name"),
    # The image.
    case({f"{GATEWAY}/image": "lite"}, "unknown_image", f"{PLACE}.image", "litellm"),
    case(
        {"*/fleet_images/litellm/tag": "main-stable"},
        "gateway_image_floating_tag",
        f"{PLACE}.image",
        "main-stable moves",
    ),
    case({"*/fleet_images/litellm/tag": "latest"}, "gateway_image_floating_tag", f"{PLACE}.image", "latest moves"),
    case({"*/fleet_images/litellm/engine": "1.82.8"}, "gateway_compromised", f"{PLACE}.image", "1.82.8"),
    case({"*/fleet_images/litellm/engine": "1.107.0"}, "gateway_compromised", f"{PLACE}.image", "1.107.0"),
    case(
        {"*/fleet_images/litellm/digest": "sha256:1bbcb1443bc9" + "0" * 52},
        "gateway_compromised",
        f"{PLACE}.image",
        "compromised",
    ),
    case({"*/fleet_images/litellm/engine": "1.103.0"}, "gateway_too_old", f"{PLACE}.image", "1.108.7", WARNING),
    case({"*/fleet_images/litellm/engine": REMOVED}, "gateway_version_missing", f"{PLACE}.image", "engine:", WARNING),
    case(
        {"*/fleet_images/litellm/digest": REMOVED},
        "digest_missing",
        "group_vars: fleet_images.litellm.digest",
        "gateway ana-docker",
    ),
    # Keys.
    case({f"{GATEWAY}/master_key": "sk-1234"}, "gateway_master_key_weak", f"{PLACE}.master_key", "everybody"),
    case({f"{GATEWAY}/keys/0/key": "sk-short"}, "gateway_key_weak", f"{PLACE}.keys[0].key", "16"),
    case({f"{GATEWAY}/keys/0/key": MASTER_KEY}, "gateway_key_is_master", f"{PLACE}.keys[0].key", "operators"),
    case(
        {f"{GATEWAY}/keys/1": {"name": "team-a", "key": "sk-team-b-0123456789"}},
        "duplicate_key",
        f"{PLACE}.keys[1].name",
        "team-a",
    ),
    case(
        {f"{GATEWAY}/keys/1": {"name": "team-b", "key": "sk-team-a-0123456789"}},
        "duplicate_key",
        f"{PLACE}.keys[1].key",
        "team-a",
    ),
    case({f"{GATEWAY}/keys/0/models": ["qwen"]}, "key_model_unknown", f"{PLACE}.keys[0].models", "qwen-vl"),
    case({f"{GATEWAY}/database_url": "mysql://h/x"}, "gateway_database", f"{PLACE}.database_url", "postgresql://"),
    case(
        {f"{GATEWAY}/database_url": "postgresql://u:p@h/x"},
        "gateway_keys_and_database",
        f"{PLACE}.keys",
        "one of the two",
    ),
    # Aliases and fallbacks.
    case({f"{GATEWAY}/aliases/old": "qwen-lv"}, "alias_unknown", f"{PLACE}.aliases.old", '"qwen-vl"'),
    case({f"{GATEWAY}/aliases/old": "vision"}, "alias_unknown", f"{PLACE}.aliases.old", "not a route"),
    case({f"{GATEWAY}/aliases/qwen-vl": "embedder"}, "alias_taken", f"{PLACE}.aliases.qwen-vl", "another alias"),
    case(
        {**WITH_REWARD, f"{GATEWAY}/aliases/score": "judge"},
        "target_passed_through",
        f"{PLACE}.aliases.score",
        "/reward/judge",
    ),
    case(
        {"*/fleet_models/small": SMALL, f"{GATEWAY}/aliases/s": "small"},
        "alias_unknown",
        f"{PLACE}.aliases.s",
        "no stack of the fleet runs",
    ),
    case(
        {f"{GATEWAY}/fallbacks": {"qwen-vl": ["nope"]}},
        "fallback_unknown",
        f"{PLACE}.fallbacks.qwen-vl[0]",
        "not a route",
    ),
    case({f"{GATEWAY}/fallbacks": {"nope": ["qwen-vl"]}}, "fallback_unknown", f"{PLACE}.fallbacks.nope", "not a route"),
    case(
        {f"{GATEWAY}/fallbacks": {"vision": ["qwen-vl"]}},
        "fallback_to_itself",
        f"{PLACE}.fallbacks.vision[0]",
        "itself",
    ),
    case(
        {f"{GATEWAY}/fallbacks": {"qwen-vl": ["embedder"]}},
        "fallback_other_task",
        f"{PLACE}.fallbacks.qwen-vl[0]",
        "(embed)",
    ),
    case(
        {**WITH_SMALL, f"{GATEWAY}/fallbacks": {"qwen-vl": ["small"]}},
        "fallback_loses_modality",
        f"{PLACE}.fallbacks.qwen-vl[0]",
        "no image",
        WARNING,
    ),
    case(
        {
            **WITH_SMALL,
            "*/fleet_models/small": {**SMALL, "args": {"max_model_len": 32768}},
            f"{GATEWAY}/context_window_fallbacks": {"small": ["qwen-vl"]},
        },
        "fallback_context_not_longer",
        f"{PLACE}.context_window_fallbacks.small[0]",
        "longer context",
    ),
    # Replicas.
    case(
        {f"{ML2}/0/weight": 1, f"{ML2}/2/weight": 1},
        "weight_missing",
        "host_vars of ana-ml3: fleet_stacks[0].weight",
        "no traffic",
    ),
    case({f"{ML2}/1/weight": 0}, "weight_all_zero", "host_vars of ana-ml2: fleet_stacks[1].weight", "weight"),
    case(
        {f"{ML2}/2/args": {"max_model_len": 16384}},
        "replica_context_differs",
        "host_vars of ana-ml2: fleet_stacks[0].args.max_model_len",
        "at random",
        WARNING,
    ),
    # Addresses and times.
    case({f"{GATEWAY}/addresses": {"ana-mll2": "h"}}, "address_unknown", f"{PLACE}.addresses.ana-mll2", "ana-ml2"),
    case({f"{GATEWAY}/addresses": {"ana-ml2": "http://h"}}, "address_malformed", f"{PLACE}.addresses.ana-ml2", "alone"),
    case({f"{GATEWAY}/addresses": {"ana-ml2": "h:8000"}}, "address_malformed", f"{PLACE}.addresses.ana-ml2", "port"),
    case({f"{GATEWAY}/stream_timeout": 700}, "gateway_stream_timeout", f"{PLACE}.stream_timeout", "shorter"),
    # What is merged over LiteLLM's own settings.
    router("routing_stratgy", "least-busy", "router_setting_unknown", '"routing_strategy"'),
    router("routing_strategy", "round-robin", "router_setting_value", "simple-shuffle"),
    router("num_retries", "two", "router_setting_type", "without quotes"),
    router("num_retries", True, "router_setting_type", "True"),
    router("num_retries", -1, "router_setting_value", "negative"),
    router("fallbacks", [], "router_setting_owned", "Use fallbacks"),
    router("default_fallbacks", "embedder", "router_setting_owned", "Use fallbacks"),
    router("model_group_alias", {}, "router_setting_owned", "Use aliases"),
    router("optional_pre_call_checks", ["sesion_affinity"], "router_setting_value", '"session_affinity"'),
    router(
        "allowed_fails_policy",
        {"BadRequestAllowedFails": 1},
        "router_setting_unknown",
        "BadRequestErrorA",
        ".BadRequestAllowedFails",
    ),
    router(
        "allowed_fails_policy",
        {"TimeoutErrorAllowedFails": "x"},
        "router_setting_type",
        "whole number",
        ".TimeoutErrorAllowedFails",
    ),
    router(
        "allowed_fails_policy",
        {"InternalServerErrorAllowedFails": 3},
        "router_setting_value",
        "guard",
        ".InternalServerErrorAllowedFails",
    ),
    case({f"{GATEWAY}/compose": {"user": "root"}}, "compose_owned", f"{PLACE}.compose.user", "litellm_gateway_user"),
    case({f"{GATEWAY}/compose": {"command": []}}, "compose_owned", f"{PLACE}.compose.command", "settings"),
]


@pytest.mark.parametrize(("edits", "code", "place", "says", "severity"), WRONG)
def test_one_finding_that_says_where_and_what(
    edits: list[tuple[str, Any]], code: str, place: str, says: str, severity: str
) -> None:
    findings = findings_of(changed(*edits))
    assert [(each.code, each.place) for each in findings] == [(code, place)], "\n".join(map(str, findings))
    assert says in f"{findings[0].problem} {findings[0].remedy}"
    assert findings[0].severity == severity
    assert MASTER_KEY not in str(findings[0])


# Who refuses each of the odd configurations that LiteLLM was given: `made`: it cannot be written at all, since the file
# is made from values that were read; a code: our refusal of the inventory that would ask for it.
ODD = {
    "yaml-syntax": "made", "empty": "made", "top-is-list": "made", "no-model_list": "made", "model_list-empty": "made",
    "model_list-is-dict": "made", "no-litellm_params": "made", "no-model_name": "made", "no-model": "made",
    "unknown-provider": "made", "no-provider-prefix": "made", "unknown-toplevel": "made", "unknown-general": "made",
    "badtype-general": "made", "badtype-general2": "made", "unknown-router": "router_setting_unknown",
    "bad-routing_strategy": "router_setting_value", "fallbacks-dict": "router_setting_owned",
    "fallbacks-unknown-target": "fallback_unknown", "fallbacks-unknown-source": "fallback_unknown",
    "fallbacks-str-target": "made", "alias-unknown": "alias_unknown", "alias-collides": "alias_taken",
    "num_retries-str": "router_setting_type", "master-env-unset": "missing_key", "apikey-env-unset": "made",
    "dup-id": "duplicate_stack", "no-master": "missing_key", "master-sk1234": "gateway_master_key_weak",
    "timeout-str": "wrong_type", "unknown-litellm_param": "unknown_key", "unknown-model_info": "unknown_key",
    "unknown-litellm_settings": "unknown_key", "bad-mode": "not_a_choice", "dup-yaml-key": "made",
    "bad-callback": "made", "weight-str": "wrong_type", "rpm-str": "wrong_type", "api_base-noscheme": "made",
    "general-unknown-nested": "made", "retry_policy-unknown": "router_setting_unknown",
    "allowed_fails_policy-unknown": "router_setting_unknown", "pre_call_bad": "router_setting_value",
    "model_name-int": "made", "master_key-int": "wrong_type", "model_info-id-int": "made",
    "litellm_settings-null": "made", "blocked-str": "made", "ctxfallbacks-dict": "router_setting_owned",
    "default_fallbacks-str": "router_setting_owned", "litellm-default_fallbacks-unknown": "router_setting_owned",
}  # fmt: skip
ASKED_FOR: dict[str, dict[str, Any]] = {
    "unknown-router": {f"{GATEWAY}/settings": {"no_such_key": 1}},
    "bad-routing_strategy": {f"{GATEWAY}/settings": {"routing_strategy": "round-robin"}},
    "fallbacks-dict": {f"{GATEWAY}/settings": {"fallbacks": {"qwen-vl": ["embedder"]}}},
    "fallbacks-unknown-target": {f"{GATEWAY}/fallbacks": {"qwen-vl": ["nope"]}},
    "fallbacks-unknown-source": {f"{GATEWAY}/fallbacks": {"nope": ["qwen-vl"]}},
    "alias-unknown": {f"{GATEWAY}/aliases": {"a": "nope"}, f"{GATEWAY}/keys": []},
    "alias-collides": {f"{GATEWAY}/aliases/embedder": "qwen-vl"},
    "num_retries-str": {f"{GATEWAY}/settings": {"num_retries": "2"}},
    "master-env-unset": {f"{GATEWAY}/master_key": REMOVED},
    "dup-id": {f"{ML2}/2/name": "vl"},
    "no-master": {f"{GATEWAY}/master_key": REMOVED},
    "master-sk1234": {f"{GATEWAY}/master_key": "sk-1234"},
    "timeout-str": {f"{GATEWAY}/timeout": "abc"},
    "unknown-litellm_param": {f"{ML2}/0/no_such_param": 1},
    "unknown-model_info": {"*/fleet_models/qwen-vl/no_such_info": 1},
    "unknown-litellm_settings": {f"{GATEWAY}/no_such_setting": 1},
    "bad-mode": {"*/fleet_models/qwen-vl/task": "score"},
    "weight-str": {f"{ML2}/1/weight": "heavy"},
    "rpm-str": {f"{GATEWAY}/keys/0/rpm": "abc"},
    "retry_policy-unknown": {f"{GATEWAY}/settings": {"retry_policy": {}}},
    "allowed_fails_policy-unknown": {f"{GATEWAY}/settings": {"allowed_fails_policy": {"Nope": 1}}},
    "pre_call_bad": {f"{GATEWAY}/settings": {"optional_pre_call_checks": ["nope"]}},
    "master_key-int": {f"{GATEWAY}/master_key": 123456789},
    "ctxfallbacks-dict": {f"{GATEWAY}/settings": {"context_window_fallbacks": {}}},
    "default_fallbacks-str": {f"{GATEWAY}/settings": {"default_fallbacks": "embedder"}},
    "litellm-default_fallbacks-unknown": {f"{GATEWAY}/settings": {"default_fallbacks": ["nope"]}},
}


def test_every_odd_configuration_of_the_study_is_accounted_for() -> None:
    text = (FIXTURES / "validate-config-results.txt").read_text(encoding="utf-8")
    assert set(re.findall(r"^## \d+-(\S+)\.yaml", text, re.MULTILINE)) - {"good"} == set(ODD)
    assert {name for name, who in ODD.items() if who != "made"} == set(ASKED_FOR)


@pytest.mark.parametrize("name", ASKED_FOR)
def test_what_litellm_would_take_is_refused_here(name: str) -> None:
    assert {each.code for each in findings_of(changed(*ASKED_FOR[name].items()))} == {ODD[name]}


# --- what a right inventory becomes ---------------------------------------------------------------------------------


def rendered(
    *edits: tuple[str, Any], blocked: tuple[str, ...] = (), settings: Optional[GatewaySettings] = None
) -> RenderedGateway:
    fleet = inventory.parse(changed(*edits), gpu_hosts=GPU_HOSTS, gateways=GATEWAYS)
    plan = routes.make(fleet, fleet.gateways["ana-docker"])
    return gateway_files.render(plan, settings or GatewaySettings(), "# keys\n", blocked)


def config(gateway: RenderedGateway) -> dict[str, Any]:
    return yaml.safe_load(gateway.files["config/config.yaml"].content)


def test_every_placement_is_a_route_of_its_own() -> None:
    listed = config(rendered())["model_list"]
    assert [(each["model_info"]["id"], each["model_name"], each["model_info"]["mode"]) for each in listed] == [
        ("ana-ml2--vl", "qwen-vl", "chat"),
        ("ana-ml2--embed", "embedder", "embedding"),
        ("ana-ml2--wide", "qwen-vl", "chat"),
        ("ana-ml3--vl", "qwen-vl", "chat"),
    ]
    assert listed[0]["litellm_params"]["model"] == "hosted_vllm/qwen-vl"
    assert listed[0]["litellm_params"]["api_base"] == "http://ana-ml2:8007/v1"
    assert listed[0]["model_info"]["supports_vision"] is True
    assert listed[0]["model_info"]["max_input_tokens"] == 32768
    assert "supports_vision" not in listed[1]["model_info"]


def test_the_order_of_hosts_does_not_matter_for_ids() -> None:
    fleet = inventory.parse(FLEET, gpu_hosts=GPU_HOSTS[::-1], gateways=GATEWAYS)
    assert routes.make(fleet, fleet.gateways["ana-docker"]).ids == rendered().ids


@pytest.mark.parametrize(
    ("given", "base"),
    [
        ("10.0.0.7", "http://10.0.0.7:8007/v1"),
        ("fd00::7", "http://[fd00::7]:8007/v1"),
        ("gpu.lan", "http://gpu.lan:8007/v1"),
    ],
)
def test_addresses(given: str, base: str) -> None:
    listed = config(rendered((f"{GATEWAY}/addresses", {"ana-ml2": given})))["model_list"]
    assert listed[0]["litellm_params"]["api_base"] == base
    assert listed[-1]["litellm_params"]["api_base"] == "http://ana-ml3:8007/v1"


def test_weights_are_of_the_stack() -> None:
    edits = [(f"{ML2}/0/weight", 2), (f"{ML2}/2/weight", 1), ("ana-ml3/fleet_stacks/0/weight", 0)]
    listed = config(rendered(*edits))["model_list"]
    assert [each["litellm_params"].get("weight") for each in listed] == [2, None, 1, 0]


@pytest.mark.parametrize("source", ["vision", "qwen-vl"])
def test_a_stand_in_is_found_by_the_model_s_name_and_by_its_alias(source: str) -> None:
    """Real LiteLLM looks it up by the name the client used (molecule gateway: the stand-in test)."""
    edits = [*WITH_SMALL.items(), (f"{GATEWAY}/fallbacks", {source: ["small"]})]
    listed = config(rendered(*edits))["router_settings"]["fallbacks"]
    assert listed == [{"qwen-vl": ["small"]}, {"vision": ["small"]}]


def test_reward_models_are_passed_through_with_their_key_in_the_environment() -> None:
    gateway = rendered(*WITH_REWARD.items(), (f"{ML2}/2/api_key", "sk-engine-secret-123"))
    endpoints = config(gateway)["general_settings"]["pass_through_endpoints"]
    assert [each["path"] for each in endpoints] == ["/reward/judge", "/reward/ana-ml2--wide"]
    assert endpoints[0]["headers"] == {"Authorization": "Bearer os.environ/ENGINE_KEY_ANA_ML2__WIDE"}
    assert "ENGINE_KEY_ANA_ML2__WIDE='sk-engine-secret-123'" in gateway.files[".env"].content
    assert "ana-ml2--wide" not in gateway.ids


def test_secrets_stand_in_files_of_their_own_only() -> None:
    gateway = rendered(
        (f"{ML2}/0/api_key", "sk-engine-secret-123"), (f"{GATEWAY}/settings", {"redis_password": "pw-redis"})
    )
    for name, file in gateway.files.items():
        shown = file.content
        for secret in (MASTER_KEY, "sk-engine-secret-123", "sk-team-a-0123456789", "pw-redis"):
            assert secret not in shown or file.secret, f"{secret} in {name}"
    assert {name: file.mode for name, file in gateway.files.items() if file.secret} == {
        ".env": "0600",
        "config/secrets.yaml": "0640",
        "config/keys.json": "0640",
    }
    assert MASTER_KEY not in str(gateway.service_definition)
    assert {MASTER_KEY, "sk-engine-secret-123", "sk-team-a-0123456789"} <= set(gateway.secrets)


def test_clients_are_known_by_the_digest_of_their_key() -> None:
    keys = yaml.safe_load(rendered((f"{GATEWAY}/keys/0/models", ["qwen-vl"])).files["config/keys.json"].content)
    assert keys == {
        hashlib.sha256(b"sk-team-a-0123456789").hexdigest(): {
            "name": "team-a",
            "models": ["qwen-vl", "vision"],
            "paths": [],
            "rpm": None,
        }
    }


def test_with_a_database_litellm_keeps_the_keys() -> None:
    gateway = rendered((f"{GATEWAY}/database_url", "postgresql://u:p@h/x"), (f"{GATEWAY}/keys", []))
    general = config(gateway)["general_settings"]
    assert "custom_auth" not in general
    assert general["store_model_in_db"] is False
    assert "config/keys.json" not in gateway.files
    assert "postgresql" not in gateway.files["config/config.yaml"].content


def test_the_container_is_closed() -> None:
    service = yaml.safe_load(rendered().files["compose.yaml"].content)["services"]["litellm"]
    assert service["image"] == f"ghcr.io/berriai/litellm@{DIGEST}"
    assert service["user"] == "10001:10001"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["volumes"] == ["/opt/docker/compose/litellm/config:/etc/litellm:ro"]
    assert service["stop_grace_period"] == "620s"
    assert service["command"][-4:] == ["--num_workers", "2", "--timeout_worker_healthcheck", "150"]


def test_compose_of_the_inventory_is_merged() -> None:
    gateway = rendered((f"{GATEWAY}/compose", {"mem_limit": "6g", "environment": {"TZ": "UTC"}}))
    assert gateway.service_definition["mem_limit"] == "6g"
    assert gateway.service_definition["environment"]["TZ"] == "UTC"
    assert gateway.service_definition["environment"]["NO_DOCS"] == "True"


def test_a_blocked_route_is_still_a_route() -> None:
    gateway = rendered(blocked=("ana-ml2--vl",))
    blocked = [each["model_info"]["id"] for each in config(gateway)["model_list"] if each["model_info"].get("blocked")]
    assert blocked == ["ana-ml2--vl"]
    assert gateway.ids == rendered().ids
    assert gateway.hash == rendered().hash
    assert gateway.config_mark != rendered().config_mark


def test_how_many_replicas_are_left() -> None:
    fleet = inventory.parse(FLEET, gpu_hosts=GPU_HOSTS, gateways=GATEWAYS)
    plan = routes.make(fleet, fleet.gateways["ana-docker"])
    assert routes.unblocked_replicas(plan, ["ana-ml2--vl", "ana-ml2--embed"]) == {"qwen-vl": 2, "embedder": 0}


def test_litellm_counts_an_alias_once_for_each_replica() -> None:
    assert rendered().models == 4 + 3
    assert rendered((f"{GATEWAY}/aliases", {"e": "embedder"}), (f"{GATEWAY}/keys", [])).models == 4 + 1


def test_it_crosses_the_wire_unchanged() -> None:
    gateway = rendered((f"{ML2}/0/api_key", "sk-engine-secret-123"))
    assert RenderedGateway.from_dict(gateway.as_dict()).as_dict() == gateway.as_dict()


# --- what differs ---------------------------------------------------------------------------------------------------


def told(gateway: RenderedGateway, **more: Any) -> Told:
    entries = [
        {"model_info": {"id": each.id, "supports_vision": each.supports_vision, **more}} for each in gateway.routes
    ]
    entries[0]["model_info"].setdefault("modelfleet_config", gateway.config_mark)
    return Told(200, (tuple(entries),) * 2)


def live(gateway: RenderedGateway, **more: Any) -> LiveGateway:
    image = gateway.image.partition("@")[2]
    given: dict[str, Any] = {
        "files": {name: LiveFile(file.content, file.mode, 0.0) for name, file in gateway.files.items()},
        "container": {
            "Image": image,
            "Config": {"Image": gateway.image, "Labels": {LABEL_HASH: gateway.hash}},
            "State": {"Status": "running"},
        },
        "told": told(gateway),
        "receipt": {"proof": gateway_files.proof(gateway)},
    }
    return LiveGateway(**{**given, **more})


def actions(gateway: RenderedGateway, now: LiveGateway) -> dict[str, str]:
    return {each.item: each.action for each in gateway_files.compare(gateway, now)}


def test_nothing_differs() -> None:
    assert actions(rendered(), live(rendered())) == {}


def test_a_new_stack_needs_a_reload_only() -> None:
    before, after = rendered((f"{ML2}/2/model", "embedder")), rendered()
    found = gateway_files.compare(after, live(before))
    assert gateway_files.step(found) == gateway_files.RELOAD
    assert {each.action for each in found} == {gateway_files.RELOAD, drift.ASK}


@pytest.mark.parametrize(
    ("edit", "step"),
    [
        ((f"{GATEWAY}/timeout", 300), "reload"),
        ((f"{GATEWAY}/aliases", {"vision": "qwen-vl", "see": "qwen-vl"}), "reload"),
        ((f"{ML2}/0/api_key", "sk-engine-secret-123"), "reload"),
        ((f"{GATEWAY}/keys/0/rpm", 60), "write"),
        ((f"{GATEWAY}/port", 4001), "recreate"),
        ((f"{GATEWAY}/master_key", "sk-another-0123456789abcdef"), "recreate"),
    ],
)
def test_what_a_change_takes(edit: tuple[str, Any], step: str) -> None:
    assert gateway_files.step(gateway_files.compare(rendered(edit), live(rendered()))) == step


@pytest.mark.parametrize(
    ("more", "item", "action"),
    [
        ({"container": None}, "container", drift.CREATE),
        ({"receipt": None}, "receipt", drift.ASK),
        ({"told": Told(0, error="connection refused")}, "readiness", drift.WAIT),
        ({"told": Told(503)}, "readiness", drift.WAIT),
        ({"told": told(rendered(), db_model=True)}, "routes", "reload"),
        ({"told": told(rendered(), modelfleet_config="0123456789ab")}, "configuration", "reload"),
        ({"told": Told(200, ((),))}, "routes", "reload"),
    ],
)
def test_what_somebody_may_find(more: dict[str, Any], item: str, action: str) -> None:
    assert actions(rendered(), live(rendered(), **more))[item] == action


def test_one_worker_that_lags_behind_is_seen() -> None:
    gateway = rendered()
    both = told(gateway).answers[:1] + told(gateway, modelfleet_config="000000000000").answers[:1]
    assert [each.item for each in gateway_files.differing(gateway, Told(200, both))] == ["configuration"]


def test_a_vision_flag_that_was_lost_is_seen() -> None:
    gateway = rendered()
    lost = dataclasses.replace(
        gateway, routes=tuple(dataclasses.replace(each, supports_vision=False) for each in gateway.routes)
    )
    items = [each.item for each in gateway_files.differing(gateway, dataclasses.replace(told(lost)))]
    assert "route ana-ml2--vl supports_vision" in items


# --- two instances behind HAProxy -----------------------------------------------------------------------------------

BALANCED = (
    ("*/fleet_images/haproxy", {"repository": "haproxy", "digest": DIGEST}),
    (f"{GATEWAY}/balancer", "haproxy"),
)


def balanced() -> RenderedGateway:
    return rendered(*BALANCED, settings=GatewaySettings(instances=2))


def beside(gateway: RenderedGateway, **hashes: str) -> dict[str, Any]:
    wanted = {"litellm-2": gateway.hash, "litellm-front": gateway.front_hash, **hashes}
    return {
        name: {"Config": {"Labels": {LABEL_HASH: digest}}, "State": {"Status": "running"}}
        for name, digest in wanted.items()
        if digest
    }


def test_two_instances_are_reached_by_the_balancer_alone() -> None:
    services = yaml.safe_load(balanced().files["compose.yaml"].content)["services"]
    assert {name: each.get("ports") for name, each in services.items()} == {
        "litellm": None,
        "litellm-2": None,
        "litellm-front": ["0.0.0.0:4000:4000"],
    }
    assert services["litellm-front"]["image"] == f"haproxy@{DIGEST}"
    servers = re.findall(r"^    server (\S+) (\S+)$", balanced().files["front/haproxy.cfg"].content, re.MULTILINE)
    assert servers == [("litellm", "litellm:4000"), ("litellm-2", "litellm-2:4000")]


@pytest.mark.parametrize("count", [2, "2"])
def test_two_instances_need_a_balancer(count: Any) -> None:
    two = ("ana-docker/litellm_gateway_instances", count)
    assert [(each.code, each.place) for each in findings_of(changed(two))] == [
        ("gateway_balancer_missing", f"{PLACE}.balancer")
    ]
    assert not findings_of(changed(two, *BALANCED))


def test_instances_are_counted() -> None:
    found = findings_of(changed(("ana-docker/litellm_gateway_instances", "two")))
    assert [(each.code, each.place) for each in found] == [
        ("wrong_type", "variables of ana-docker: litellm_gateway_instances")
    ]


def test_the_balancer_is_one_of_the_images() -> None:
    assert [(each.code, each.place) for each in findings_of(changed((f"{GATEWAY}/balancer", "haproxi")))] == [
        ("unknown_image", f"{PLACE}.balancer")
    ]


@pytest.mark.parametrize(
    ("hashes", "items"),
    [
        ({}, {}),
        ({"litellm-2": ""}, {"container litellm-2": "create"}),
        ({"litellm-2": "old"}, {"hash of litellm-2": "recreate"}),
        ({"litellm-front": "old"}, {"hash of litellm-front": "recreate"}),
        ({"litellm-3": "any"}, {"container litellm-3": "recreate"}),
    ],
)
def test_each_container_of_the_project_is_compared(hashes: dict[str, str], items: dict[str, str]) -> None:
    gateway = balanced()
    assert actions(gateway, live(gateway, beside=beside(gateway, **hashes))) == items


def test_a_second_instance_that_is_not_wanted_any_more_goes() -> None:
    found = actions(rendered(), live(rendered(), beside=beside(balanced())))
    assert found == {"container litellm-2": "recreate", "container litellm-front": "recreate"}


# --- a route that leads elsewhere -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "item"),
    [
        ({"model": "hosted_vllm/embedder"}, "route ana-ml2--vl model"),
        ({"api_base": "http://elsewhere:8007/v1"}, "route ana-ml2--vl api_base"),
    ],
)
def test_a_route_to_another_model_or_place_is_drift(parameters: dict[str, str], item: str) -> None:
    gateway = rendered()
    answer = [dict(entry) for entry in told(gateway).answers[0]]
    answer[0]["litellm_params"] = parameters
    assert actions(gateway, live(gateway, told=Told(200, (answer,)))) == {item: "reload"}


# --- a route that is blocked, leads to nothing, or is cooled down ---------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "have", "found"),
    [
        ((), {}, {}),
        ((), {"blocked": False}, {}),
        ((), {"blocked": None}, {}),
        ((), {"blocked": True}, {"route ana-ml2--vl blocked": ("False", "True")}),
        (("ana-ml2--vl",), {"blocked": True}, {}),
        (("ana-ml2--vl",), {}, {"route ana-ml2--vl blocked": ("True", "False")}),
    ],
)
def test_a_route_that_is_blocked_otherwise_is_drift_that_a_reload_repairs(
    wanted: tuple[str, ...], have: dict[str, Any], found: dict[str, tuple[str, str]]
) -> None:
    gateway = rendered(blocked=wanted)
    answer = [{"model_info": dict(entry["model_info"])} for entry in told(gateway).answers[0]]
    answer[0]["model_info"].update(have)
    compared = gateway_files.compare(gateway, live(gateway, told=Told(200, (answer,))))
    assert {each.item: (each.want, each.have) for each in compared} == found
    assert {each.action for each in compared} <= {"reload"}


VL = "ana-ml2--vl"
REFUSED = (
    "litellm.InternalServerError: InternalServerError: Hosted_vllmException - Cannot connect to host ana-ml2:8007 "
    "ssl:<ssl.SSLContext object at 0x7f> [Connect call failed ('10.0.0.7', 8007)]\nstack trace: Traceback (most recent"
)


def probe(good: tuple[str, ...] = (), bad: tuple[str, ...] = (), error: str = REFUSED) -> dict[str, Any]:
    return {
        "healthy_endpoints": [{"model_id": each} for each in good],
        "unhealthy_endpoints": [{"model_id": each, "error": error} for each in bad],
    }


@pytest.mark.parametrize(
    ("probes", "silent"),
    [
        ((), []),
        (({},), []),  # a new worker has probed nothing
        ((probe(good=(VL,)),), []),
        ((probe(bad=(VL,)),), [VL]),
        ((probe(bad=(VL,)), {}), [VL]),
        # One worker's probe is older than the other's: it is back.
        ((probe(bad=(VL,)), probe(good=(VL,))), []),
        # Not in the inventory: that is drift already.
        ((probe(bad=("ana-ml9--gone",)),), []),
    ],
)
def test_a_route_whose_probes_fail_is_silent(probes: tuple[dict[str, Any], ...], silent: list[str]) -> None:
    gateway = rendered()
    now = dataclasses.replace(told(gateway), probes=probes)
    assert [each.route.id for each in gateway_files.silent(gateway, now)] == silent
    assert gateway_files.differing(gateway, now) == []


def test_a_route_that_is_blocked_gets_no_request_on_purpose() -> None:
    gateway = rendered(blocked=(VL,))
    now = dataclasses.replace(told(gateway, blocked=True), probes=(probe(bad=(VL,)),))
    assert gateway_files.silent(gateway, now) == []


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (REFUSED, "Cannot connect to host ana-ml2:8007"),
        ("litellm.AuthenticationError: AuthenticationError: Hosted_vllmException - Unauthorized", "Unauthorized"),
        ("Model is blocked", "Model is blocked"),
        ("", "it does not say why"),
    ],
)
@pytest.mark.parametrize(("answers", "code"), [(False, "route_to_nothing"), (True, "route_cooled_down")])
def test_what_a_silent_route_is_called(error: str, said: str, answers: bool, code: str) -> None:
    gateway = rendered()
    now = dataclasses.replace(told(gateway), probes=(probe(bad=(VL,), error=error),))
    (found,) = gateway_files.hazards(gateway, [(each, answers) for each in gateway_files.silent(gateway, now)])
    assert (found.code, found.severity, found.place, found.stack) == (code, "warning", "ana-docker: gateway", "vl")
    assert f"{said}." in found.problem
    assert f"route {VL} ({gateway.routes[0].url}/v1)" in found.problem
    assert "stack vl on ana-ml2" in found.remedy


def test_a_route_that_somebody_led_to_nothing_is_named_where_it_leads() -> None:
    gateway = rendered()
    answer = [dict(entry) for entry in told(gateway).answers[0]]
    answer[0]["litellm_params"] = {"api_base": "http://ana-ml2:9/v1"}
    (found,) = gateway_files.silent(gateway, Told(200, (answer,), probes=(probe(bad=(VL,)),)))
    assert found.api_base == "http://ana-ml2:9/v1"
