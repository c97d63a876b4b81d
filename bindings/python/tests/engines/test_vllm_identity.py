"""Changes that make vLLM's KV different: no hook finds blocks stored before."""
from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace as Made
from typing import Any, Callable

import pytest

pytestmark = pytest.mark.filterwarnings("ignore")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("vllm", reason="needs vLLM 0.32 or 0.33 (tests/integration/engines/environment)")
    from vllm.v1.attention.backends import cpu_attn
    from vllm_parts import Parts, caches_of, config_of, engine_of, keys_of

    from libkvbm.engine import ConfigurationError
    from libkvbm.engine.facts.vllm import model_name
    from libkvbm.vllm import KvbmOffloadingSpec, KvbmTieringSpec, adapters, identity
    from libkvbm.vllm.connector.names import Names

HOOKS = [KvbmTieringSpec, KvbmOffloadingSpec]
Make = Callable[..., Parts]


@pytest.fixture(params=HOOKS, ids=["tiering", "direct"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made: list[Parts] = []

    def make(engine: Any = None) -> Parts:
        for parts in made:
            parts.close()
        own = {"settings": {"host.capacity": "1MiB"}, "disk": str(tmp_path / "disk"), "disk_capacity": "64MiB"}
        if request.param is KvbmTieringSpec:
            own["pool"] = "64KiB"
        spec = request.param(config_of({"kvbm": own}))
        spec.failures_reported = True
        made[:] = [Parts(spec, caches_of(), engine)]
        return made[0]

    yield make
    for parts in made:
        parts.close()


def changes() -> list[Any]:
    one = {"max_model_len": 4096}
    return [
        pytest.param({}, {"revision": "b" * 40}, id="revision"),
        pytest.param({}, {"rope_theta": 1e6}, id="an override of its rotary embedding"),
        pytest.param({"cache": {"kv_cache_dtype_skip_layers": ["3"]}}, {"cache": {"kv_cache_dtype_skip_layers": ["5"]}},
                     id="other layers are not quantised"),
        pytest.param({"cache": {"mamba_cache_dtype": "float16"}}, {"cache": {"mamba_cache_dtype": "bfloat16"}}, id="states"),
        pytest.param({"images": {"mm_processor_kwargs": {"do_pad": True}}}, {"images": {}}, id="what is made of images"),
        pytest.param({"lengthened": "longrope"} | one, {"lengthened": "longrope", "max_model_len": 131072}, id="longrope"),
    ]


@pytest.mark.parametrize("before, after", changes())
def test_another_model_is_a_miss(make: Make, before: dict[str, Any], after: dict[str, Any]) -> None:
    keys = keys_of(2)
    make(engine_of(**before)).store(keys, [0, 1])
    changed = make(engine_of(**after))
    assert changed.find(keys, changed.request()) == 0
    same = make(engine_of(**before))
    assert same.find(keys, same.request()) == 2


def test_another_order_of_a_block_is_a_miss(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = keys_of(2)
    make().store(keys, [0, 1])
    with monkeypatch.context() as patched:
        patched.setattr(cpu_attn, "_get_attn_isa", lambda *asked: "of another processor")
        other = make()
        assert other.find(keys, other.request()) == 0
    same = make()
    assert same.find(keys, same.request()) == 2


def test_kernels_that_vllm_chooses_for_another_device_are_a_miss(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = keys_of(2)

    def on(capability: str) -> Parts:
        platform = Made(is_cpu=lambda: False, get_device_capability=lambda: capability)
        with monkeypatch.context() as patched:
            patched.setattr(identity, "current_platform", platform)
            return make()

    on("9.0").store(keys, [0, 1])
    other = on("10.0")
    assert other.find(keys, other.request()) == 0
    same = on("9.0")
    assert same.find(keys, same.request()) == 2


def test_weights_that_nothing_tells_from_others_refuse_the_start(make: Make) -> None:
    with pytest.raises(ConfigurationError, match="a/model are not on this machine.*option revision"):
        make(engine_of(revision="main"))


def test_names_that_are_not_cryptographic_refuse_the_start(make: Make) -> None:
    with pytest.raises(ConfigurationError, match="xxhash.*weak_hashes"):
        make(weak_engine())


def weak_engine() -> Any:
    engine = engine_of()
    engine.cache_config.prefix_caching_hash_algo = "xxhash"
    return engine


def test_scales_that_are_made_at_run_time_put_it_aside(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    keys = keys_of(2)
    parts = make(engine_of(cache={"calculate_kv_scales": True}))
    assert "steps aside" in caplog.text and "calculate_kv_scales" in caplog.text
    parts.store(keys, [0, 1])
    assert parts.find(keys, parts.request()) == 0


def lora(folder: Path, weights: bytes, reload: bool = False) -> Any:
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text('{"r": 8}')
    (folder / "adapter_model.safetensors").write_bytes(weights)
    return Made(lora_name="tuned", lora_int_id=1, lora_path=str(folder), load_inplace=reload)


def restarted() -> None:
    adapters._known.clear()


def test_an_adapter_that_cannot_be_read_is_this_processs_own(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    restarted()
    gone = Made(lora_request=Made(lora_name="tuned", lora_int_id=1, lora_path=str(tmp_path / "nowhere"), load_inplace=False))
    one = adapters.adapter_of(gone)
    assert len(one) == 32 and adapters.adapter_of(gone) == one
    assert "for this process alone" in caplog.text
    restarted()
    assert adapters.adapter_of(gone) != one


def test_an_adapter_that_was_trained_again_is_a_miss(make: Make, tmp_path: Path) -> None:
    keys, folder = keys_of(2), tmp_path / "adapter"
    restarted()
    first = make()
    first.fill(0, 7)
    first.fill(1, 8)
    first.store(keys, [0, 1], adapter=lora(folder, b"1" * 1000))
    restarted()
    changed, adapter = make(), lora(folder, b"2" * 1000)
    assert changed.find(keys, changed.request(adapter)) == 0
    restarted()
    same, adapter = make(), lora(folder, b"1" * 1000)
    request = same.request(adapter)
    assert same.find(keys, request) == 2
    same.load(keys, [4, 5], request)
    assert same.content(4) == {7} and same.content(5) == {8}


@pytest.mark.parametrize("identity", ["engine", "pages"])
def test_the_connector_names_blocks_of_adapters_likewise(identity: str, tmp_path: Path) -> None:
    def request(name: str, adapter: Any) -> Any:
        return Made(request_id=name, block_hashes=[bytes([i]) * 32 for i in range(3)], lora_request=adapter)

    restarted()
    folder, names = tmp_path / "adapter", Names(identity, 32)
    none, one = list(names.of(request("a", None))), list(names.of(request("b", lora(folder, b"1" * 1000))))
    assert not set(none) & set(one) and len(one) == 3
    # vLLM uses the loaded adapter until a request to load it again.
    assert names.of(request("c", lora(folder, b"2" * 1000))) == one
    two = names.of(request("d", lora(folder, b"2" * 1000, reload=True)))
    assert not set(one) & set(two)
    assert names.of(request("b", lora(folder, b"2" * 1000))) == one  # a request keeps the one that it began with
    suffix = bytes(4) if identity == "pages" else b""
    assert one[0] == adapters.named(bytes(32) + suffix, adapters._digest(str(lora(folder, b"1" * 1000).lora_path)))


def test_the_length_it_serves_matters_only_where_the_model_reads_by_it() -> None:
    assert model_name(engine_of(max_model_len=1)) == model_name(engine_of(max_model_len=2))
    assert model_name(engine_of(lengthened="su", max_model_len=1)) != model_name(engine_of(lengthened="su", max_model_len=2))


def test_a_model_in_one_file_is_known_by_its_bytes(tmp_path: Path) -> None:
    file, names = tmp_path / "model.gguf", []
    for byte in (b"1", b"2", b"1"):
        file.write_bytes(byte * 1000)
        names.append(model_name(engine_of(str(file))))
    assert names[0] != names[1] and names[0] == names[2]
