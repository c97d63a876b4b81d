"""Inputs of vLLM's own requests in the names of their blocks: everything that their KV depends on."""
from __future__ import annotations

import itertools
import warnings
from typing import Any, Optional

import pytest

pytestmark = pytest.mark.filterwarnings("ignore")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch", reason="pip install torch==2.13.0")
    pytest.importorskip("vllm", reason="needs vLLM 0.32 or 0.33 (tests/integration/engines/environment)")
    from vllm import SamplingParams
    from vllm.lora.request import LoRARequest
    from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.core import kv_cache_utils
    from vllm.v1.request import Request

    from libkvbm.vllm.connector import decode
    from libkvbm.vllm.connector.names import Names

BLOCK, N = 32, 4
_hash = get_hash_fn_by_name("sha256")
kv_cache_utils.init_none_hash(_hash)
_numbers = itertools.count()


def image(identifier: str, offset: int = 40, length: int = 8) -> Any:
    """In the second block of a prompt."""
    return MultiModalFeatureSpec(data=None, modality="image", identifier=identifier,
                                 mm_position=PlaceholderRange(offset=offset, length=length))


def request(images: Optional[list[Any]] = None, tokens: Optional[list[int]] = None, **more: Any) -> Any:
    return Request(request_id=f"r{next(_numbers)}", prompt_token_ids=tokens or [7] * (BLOCK * N), pooling_params=None,
                   sampling_params=SamplingParams(max_tokens=1), mm_features=images,
                   block_hasher=kv_cache_utils.get_request_block_hasher(BLOCK, _hash), **more)


def alike(one: Any, other: Any, identity: str) -> int:
    """Leading blocks of equal names; of what follows none may be equal."""
    names = Names(identity, BLOCK)
    pairs = list(zip(names.of(one), names.of(other), strict=True))
    same = [a == b for a, b in pairs]
    n = same.index(False) if False in same else len(same)
    assert not any(same[n:])
    return n


@pytest.mark.parametrize("identity", ["engine", "pages", "tokens"])
def test_names_have_all_tokens_in_them_up_to_their_own(identity: str) -> None:
    for at in range(BLOCK * N):
        tokens = [7] * (BLOCK * N)
        tokens[at] = 8
        assert alike(request(), request(tokens=tokens), identity) == at // BLOCK


@pytest.mark.parametrize("identity", ["engine", "pages"])
def test_names_have_the_image_in_them_from_its_block_on(identity: str) -> None:
    cat = request([image("cat")])
    assert alike(cat, request([image("cat")]), identity) == N
    assert alike(cat, request([image("dog")]), identity) == 1
    assert alike(cat, request([image("cat", offset=41)]), identity) == 1
    assert alike(cat, request(), identity) == 1
    assert alike(cat, request([image("cat"), image("dog", offset=100)]), identity) == 3


@pytest.mark.parametrize("identity", ["engine", "pages"])
def test_names_have_salt_adapter_and_embeddings_in_them_from_the_first_block_on(identity: str) -> None:
    plain = request()
    for other in (request(cache_salt="s"), request(lora_request=LoRARequest("tuned", 1, "/none"))):
        assert alike(plain, other, identity) == 0
    assert alike(request(cache_salt="s"), request(cache_salt="s"), identity) == N
    assert alike(request(cache_salt="s"), request(cache_salt="t"), identity) == 0
    embedded = [request(prompt_embeds=torch.full((BLOCK * N, 8), float(i))) for i in (1, 1, 2)]
    assert alike(embedded[0], embedded[1], identity) == N
    assert alike(plain, embedded[0], identity) == 0 and alike(embedded[0], embedded[2], identity) == 0


@pytest.mark.parametrize("more", [{"images": [image("cat")]}, {"cache_salt": "s"},
                                  {"lora_request": LoRARequest("tuned", 1, "/none")}], ids=["image", "salt", "adapter"])
def test_tokens_alone_name_none_of_them(more: dict[str, Any]) -> None:
    assert Names("tokens", BLOCK).of(request(**more)) == []
    assert len(Names("tokens", BLOCK).of(request())) == N


def test_a_hand_over_is_of_the_same_images_and_adapter() -> None:
    def digest(made: Any, tokens: int = BLOCK * N) -> Optional[str]:
        return decode.digest(made, tokens)

    cat = digest(request([image("cat")]))
    assert cat is not None and cat == digest(request([image("cat")]))
    others = [digest(request()), digest(request([image("dog")])), digest(request([image("cat", offset=41)])),
              digest(request([image("cat")], lora_request=LoRARequest("tuned", 1, "/none")))]
    assert len({cat, *others}) == 5
    # Tokens after those that are handed over do not matter.
    assert digest(request([image("cat")]), 32) == digest(request(), 32)
    embedded = request()
    embedded.prompt_embeds = torch.zeros(BLOCK * N, 8)
    assert digest(embedded) is None
