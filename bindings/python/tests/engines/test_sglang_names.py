"""Inputs of SGLang's own requests in the hashes of their pages, and libkvbm's keys from those."""
from __future__ import annotations

import warnings
from array import array
from typing import Any, Optional

import pytest

pytestmark = pytest.mark.filterwarnings("ignore")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("sglang", reason="pip install sglang==0.5.23")
    pytest.importorskip("sglang.srt.mem_cache.hicache_storage", reason="SGLang's dependencies are not there")
    from sglang.srt.managers.schedule_batch import Modality, MultimodalDataItem
    from sglang.srt.mem_cache.radix_cache import RadixKey
    from sglang.srt.mem_cache.utils import get_storage_hash_str

    from libkvbm.sglang.names import digests

PAGE, N = 16, 4


def names(tokens: list[int], *, adapter: Optional[str] = None, salt: Optional[str] = None) -> list[bytes]:
    key = RadixKey(token_ids=array("q", tokens), extra_key=adapter, cache_salt=salt)
    data = digests(get_storage_hash_str(key, None, page_size=PAGE))
    return [data[i:i + 32] for i in range(0, len(data), 32)]


def alike(one: list[bytes], other: list[bytes]) -> int:
    """Leading pages of equal names; of what follows none may be equal."""
    same = [a == b for a, b in zip(one, other, strict=True)]
    n = same.index(False) if False in same else len(same)
    assert not any(same[n:])
    return n


def test_names_have_all_tokens_in_them_up_to_their_own() -> None:
    plain = names([7] * (PAGE * N))
    assert len(plain) == N and plain == names([7] * (PAGE * N))
    for at in range(PAGE * N):
        tokens = [7] * (PAGE * N)
        tokens[at] = 8
        assert alike(plain, names(tokens)) == at // PAGE


def test_adapter_and_salt_are_in_all_names() -> None:
    tokens = [7] * (PAGE * N)
    plain = names(tokens)
    assert alike(names(tokens, adapter="a"), names(tokens, adapter="a")) == N
    made = [plain, names(tokens, adapter="a"), names(tokens, adapter="b"), names(tokens, salt="a"),
            names(tokens, adapter="a", salt="a"), names(tokens, adapter="aa")]
    for i, one in enumerate(made):
        assert all(alike(one, other) == 0 for other in made[:i])


def image(identity: bytes, length: int) -> list[int]:
    item: Any = MultimodalDataItem(modality=Modality.IMAGE)
    item.set_identity(identity)
    return item.padding_sequence(length)


def test_images_are_in_the_names_from_their_page_on() -> None:
    def prompt(identity: bytes) -> list[bytes]:
        tokens = [7] * (PAGE * N)
        tokens[20:28] = image(identity, 8)
        return names(tokens)

    assert alike(prompt(b"1" * 32), prompt(b"1" * 32)) == N
    assert alike(prompt(b"1" * 32), prompt(b"2" * 32)) == 1
    assert alike(prompt(b"1" * 32), prompt(b"1" * 31 + b"2")) == 1
    assert alike(prompt(b"1" * 32), names([7] * (PAGE * N))) == 1
