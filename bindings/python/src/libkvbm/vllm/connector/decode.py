"""Reads and writes a request's kv_transfer_params for prefill->decode.

A proxy sends a prompt to a prefill engine with {"do_remote_decode": true} and max_tokens 1, and the kv_transfer_params
of the answer with the same prompt to a decode engine: the protocol of vLLM's own NixlConnector.
"""
from __future__ import annotations

import hashlib
import json
import logging
import re
from array import array
from typing import Any, Optional

from ..adapters import adapter_of
from .metadata import Remote

log = logging.getLogger("vllm.libkvbm")
_MOST_RANKS = 1024
_ADDRESS = re.compile(r"[A-Za-z0-9_.:\-\[\]]{1,95}")
_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,63}")
_OFFER = re.compile(r"[0-9a-f]{32}")


def wants_offer(params: Optional[dict[str, Any]]) -> bool:
    return bool(params and params.get("do_remote_decode"))


def wants_remote(params: Optional[dict[str, Any]]) -> bool:
    return bool(params and params.get("do_remote_prefill"))


def digest(request: Any, tokens: int) -> Optional[str]:
    """Digest of everything that the KV of a request's first tokens depends on besides the model. Both engines get the
    prompt from a third program, and the KV of another prompt would give a wrong answer."""
    if request.prompt_token_ids is None or getattr(request, "prompt_embeds", None) is not None:
        return None  # external embeddings have no name that two engines agree on
    ids = array("I", request.prompt_token_ids[:tokens])
    adapter = [getattr(getattr(request, "lora_request", None), "lora_name", None), adapter_of(request).hex()]
    inputs = [[str(feature.identifier), int(feature.mm_position.offset)]
              for feature in getattr(request, "mm_features", None) or () if feature.mm_position.offset < tokens]
    return hashlib.sha256(json.dumps([len(ids), adapter, inputs]).encode() + ids.tobytes()).hexdigest()


def remote_of(request: str, params: dict[str, Any]) -> Optional[Remote]:
    """The prefill that a request names, or None, with one line, where the parameters are not this connector's."""
    offer, nodes, tokens = params.get("remote_offer"), params.get("remote_nodes"), params.get("remote_num_tokens")
    prompt = params.get("remote_prompt")
    if (isinstance(offer, str) and _OFFER.fullmatch(offer) and isinstance(nodes, (list, tuple))
            and 0 < len(nodes) <= _MOST_RANKS and all(_is_node(node) for node in nodes)
            and isinstance(tokens, int) and 0 < tokens < 1 << 31 and isinstance(prompt, str)):
        return Remote(offer, tuple((node[0], node[1]) for node in nodes), tokens, prompt)
    log.warning("KvbmConnector: kv_transfer_params of request %s name no prefill engine that hands KV over with "
                "KvbmConnector; it is computed here", request)
    return None


def _is_node(node: Any) -> bool:
    return (isinstance(node, (list, tuple)) and len(node) == 2 and isinstance(node[0], str)
            and isinstance(node[1], str) and _ADDRESS.fullmatch(node[0]) is not None
            and _NAME.fullmatch(node[1]) is not None)


def answer(engine: str, request: str, remote: Remote) -> dict[str, Any]:
    """kv_transfer_params of a finished prefill, for the decode engine."""
    return {"do_remote_prefill": True, "do_remote_decode": False, "remote_engine_id": engine,
            "remote_request_id": request, "remote_offer": remote.offer,
            "remote_nodes": [list(node) for node in remote.nodes], "remote_num_tokens": remote.tokens,
            "remote_prompt": remote.prompt, "tp_size": len(remote.nodes)}
