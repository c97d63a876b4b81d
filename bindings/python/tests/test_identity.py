"""Facts that KV depends on: each row of the table in docs/formats.md is changed alone, for each engine, and then no
block stored before is found. No engine is needed: the tests change objects with the fields of the engines' own."""
from __future__ import annotations

import copy
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace as Made
from typing import Any, Callable, Optional, Union

import pytest

from libkvbm.engine import ConfigurationError, Identity
from libkvbm.engine.facts import aibrix, fields_of, lmcache, plain, sglang, vllm

COMMITS = ("a" * 40, "b" * 40)
HERE = Path(__file__).parent
ENGINES = ("vLLM", "SGLang", "LMCache", "AIBrix")
_CONFIG = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "rope_theta": 10000.0, "sliding_window": None}


def checkpoint(place: Path, **config: Any) -> Path:
    place.mkdir(parents=True)
    (place / "config.json").write_text(json.dumps(_CONFIG | config))
    (place / "model.bin").write_bytes(b"weights")
    (place / "extra.bin").write_bytes(b"more weights")
    (place / "modeling_own.py").write_text("pass")
    (place / "hf_quant_config.json").write_text('{"scale": 1}')
    (place / "preprocessor_config.json").write_text("{}")
    return place


class World:
    """An engine, and what its plug-ins make of it. A change is made to it and not undone."""

    def __init__(self, tmp_path: Path) -> None:
        self.model = checkpoint(tmp_path / "model")
        self.draft = checkpoint(tmp_path / "draft")
        self.other = checkpoint(tmp_path / "org" / "other")
        self.adapter = checkpoint(tmp_path / "adapter")
        self.scales = tmp_path / "scales.json"
        self.scales.write_text('{"scale": 1}')
        self.told: Optional[str] = None
        self.weak = False
        self.tenant: dict[str, Any] = {"tenant": "one", "secret": bytes(32)}

    def identities(self) -> list[Identity]:
        raise NotImplementedError

    def texts(self) -> list[str]:
        return [f"{identity.text()} {self.tenant}" for identity in self.identities()]


class Vllm(World):
    """Of its three hooks: offloaded records, pages, and a cache that is attached."""

    def __init__(self, tmp_path: Path) -> None:
        super().__init__(tmp_path)
        self.version = "0.32"
        self.kernels, self.instructions = "FLASH_ATTN", "capability 9.0"
        self.config: dict[str, Any] = dict(_CONFIG)
        self.commit: Optional[str] = None
        self.engine = Made(
            model_config=Made(
                model=str(self.model), model_weights="", revision=None, code_revision=None, dtype="torch.bfloat16", seed=0,
                quantization=None, quantization_config=None, max_model_len=4096, disable_sliding_window=False, model_impl="auto",
                trust_remote_code=False, enforce_eager=False, served_model_name=None, enable_prompt_embeds=False,
                multimodal_config=None),
            load_config=Made(load_format="auto", download_dir=None, model_loader_extra_config={}),
            cache_config=Made(
                cache_dtype="auto", block_size=32, prefix_caching_hash_algo="sha256", kv_cache_dtype_skip_layers=[],
                mamba_cache_dtype="auto", mamba_ssm_cache_dtype="auto", mamba_block_size=None, gpu_memory_utilization=0.9,
                num_gpu_blocks=None),
            attention_config=Made(backend=None, indexer_kv_dtype="auto"), mamba_config=Made(enable_stochastic_rounding=False),
            parallel_config=Made(decode_context_parallel_size=1, prefill_context_parallel_size=1, cp_kv_cache_interleave_size=1),
            speculative_config=Made(method="eagle", model=str(self.draft), revision=None, num_speculative_tokens=2,
                                    quantization=None, kv_cache_dtype=None),
            lora_config=None, additional_config={})
        self.offload = Made(
            groups=(Made(group_id=0, tokens_per_block=32, layer_names=("a", "b")),), model=Made(dtype="bfloat16"),
            cache=Made(blocks_per_chunk=1, tokens_per_hash=32), kv_cache_layout="LBHNC", canonical_layout=False,
            replicated_layout=False, parallel=Made(tp_size=1, pp_size=1, pcp_size=1, dcp_size=1, world_size=1))
        self.rank, self.ranks, self.bytes = 0, 1, 4096
        self.shape, self.order, self.element, self.window, self.chunk = (2, 32, 32), (1, 2, 3), "torch.bfloat16", None, None

    def identities(self) -> list[Identity]:
        engine = self.engine
        engine.model_config.hf_config = Made(to_dict=lambda: copy.deepcopy(self.config), _commit_hash=self.commit)
        scales = vllm.run_time_scales(engine)
        if scales is not None:
            raise ConfigurationError(scales)
        model = vllm.model_name(engine, self.told)
        names, tokens = self.offload.groups[0].layer_names, self.offload.groups[0].tokens_per_block
        layers = [(name, self.shape, self.order, self.element, f"{self.kernels}/{self.instructions}") for name in names]
        made_by = vllm.hashing(engine.cache_config, self.weak)
        kernels = f"vllm {self.version} {self.kernels} {self.instructions}"
        return [
            vllm.offloaded(self.offload, model, kernels, "rows", self.bytes, made_by),
            vllm.offloaded(self.offload, model, kernels, "rows", self.bytes, made_by, 0),
            vllm.attached(engine.cache_config, model, vllm.layers_text(self.version, self.window, self.chunk, layers), tokens,
                          self.bytes, self.rank, self.ranks, made_by),
            vllm.pages(engine.cache_config, model, self.version, f"{self.kernels} {self.instructions}", names, tokens,
                       self.bytes, vllm.pages_hashing(engine.cache_config, self.weak))]


class MHATokenToKVPoolHost:
    def __init__(self, **fields: Any) -> None:
        self.layout, self.dtype, self.page_size = "page_first", "torch.bfloat16", 16
        self.layer_num, self.start_layer, self.head_num, self.head_dim = 2, 0, 2, 16
        vars(self).update(fields)


class Sglang(World):
    def __init__(self, tmp_path: Path) -> None:
        super().__init__(tmp_path)
        self.version, self.device, self.pieces = "0.5.23", "capability (9, 0)", [2048, 2048]
        self.arguments = Made(
            model_path=str(self.model), revision=None, dtype="auto", quantization=None, kv_cache_dtype="auto", load_format="auto",
            json_model_override_args="{}", quantization_param_path=str(self.scales), context_length=None, random_seed=1,
            speculative_draft_model_path=str(self.draft), speculative_draft_model_quantization=None, lora_paths=[str(self.adapter)],
            lora_target_modules=None, attention_backend=None, mamba_ssm_dtype=None, enable_multimodal=None, mm_process_config={},
            trust_mm_content_hashes=False, cp_strategy=None, disable_hybrid_swa_memory=False, qsa_indexer_dtype=None,
            model_impl="auto", port=30000)
        self.storage = Made(tp_rank=0, tp_size=1, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1, is_mla_model=False,
                            model_name="served", dcp_size=1, dcp_rank=0)
        self.pool, self.tokens = MHATokenToKVPoolHost(), 16

    def identities(self) -> list[Identity]:
        sglang.check_parallel(self.storage)
        facts = sglang.server_facts(self.arguments, self.told, self.weak, self.device)
        found = []
        for name, pool in (("kv", self.pool), ("swa", self.pool)):
            place = sglang.place_of_pool(self.storage, name, pool)
            found.append(sglang.identity_of(self.version, self.storage, facts, name, pool, self.tokens, place, (0, 1),
                                            self.pieces, sum(self.pieces)))
        return found


class Lmcache(World):
    """The server's objects, and chunks inside an engine that says nothing of itself."""

    def __init__(self, tmp_path: Path) -> None:
        super().__init__(tmp_path)
        self.name: str = str(self.model)
        self.version, self.element, self.kv_rank, self.group, self.hash_bytes = "0.5.6", "bfloat16", 1 << 24 | 1 << 8, 0, 32
        self.shapes, self.tokens, self.latent, self.piece = [[2, 2, 256, 32]], 256, False, 1 << 20
        self.config = Made(pre_caching_hash_algorithm="sha256_cbor")
        self.weak = True  # of chunks inside the engine nothing else can be had
        self.engine: Optional[Any] = None

    def identities(self) -> list[Identity]:
        from libkvbm.engine.weights import weights_of

        lmcache.check_engine(self.engine)
        model = weights_of(self.name, told=self.told)
        form = ",".join(f"{self.element}{shape}" for shape in self.shapes)
        worker, ranks = self.kv_rank >> 16 & 0xFF, self.kv_rank >> 24
        return [
            lmcache.object_identity(self.version, model, form, self.kv_rank, self.group, False, self.piece,
                                    lmcache.hashing_of(self.hash_bytes, self.weak)),
            lmcache.chunk_identity(self.version, model, self.element, self.shapes, self.latent, self.tokens, worker, ranks,
                                   self.piece, lmcache.engine_hashing(self.config, self.weak))]


class Aibrix(World):
    """In a process that has no vLLM which would tell more."""

    def __init__(self, tmp_path: Path) -> None:
        super().__init__(tmp_path)
        self.version, self.text, self.ranks = "0.8.0", f"{self.model} fp8_e4m3", 1
        self.spec = Made(block_layout=Made(name="LCND"), block_dtype="torch.bfloat16", block_ntokens=16, block_nbytes=8192,
                         tensor_spec=Made(heads=[0, 1], layers=[0, 1], head_size=32))
        self.builder: Any = Made(signature="raw")
        self.connection = "aibrix_h0_1_l0_1_lcnd16rawc"
        self.engine: Optional[Any] = None

    def identities(self) -> list[Identity]:
        aibrix.check_engine(self.engine)
        text = self.text if self.told is None else f"{self.text} {self.told}"
        return [aibrix.identity_of(self.version, aibrix.model_of(text), self.spec, self.ranks,
                                   aibrix.hashing(self.connection, self.builder, self.weak))]


Change = Callable[[Any], object]


@dataclass(frozen=True)
class Cell:
    """How a row enters for an engine, and what to change: the changes are made to worlds of their own."""

    word: str
    changes: tuple[Change, ...] = ()
    test: str = ""  # hash: the test that shows it


def identity(*changes: Change) -> Cell:
    return Cell("identity", changes)


def refused(*changes: Change) -> Cell:
    return Cell("refused", changes)


def hashed(test: str) -> Cell:
    return Cell("hash", test=test)


NONE = Cell("none")
# The operator says something else of what the engine does not tell.
TOLD = Cell("told", (lambda w: setattr(w, "told", "rope_theta 1e6"),))


def put(path: str, value: Union[object, Callable[[Any], object]]) -> Change:
    """Sets a field, which must be there, or is one of an engine that has more of them ("+name")."""
    def change(world: Any) -> None:
        *way, last = path.split(".")
        for name in way:
            world = getattr(world, name)
        if not last.startswith("+"):
            assert hasattr(world, last), path
        setattr(world, last.lstrip("+"), value(world) if callable(value) else value)

    return change


def write(name: str, data: bytes, where: str = "model") -> Change:
    return lambda world: (getattr(world, where) / name).write_bytes(data)


def config(**values: Any) -> Change:
    return lambda world: world.config.update(values)


def both(*changes: Change) -> Change:
    def change(world: Any) -> None:
        for one in changes:
            one(world)

    return change


WEIGHTS = (write("model.bin", b"weightS"), write("extra.bin", b"more Weights"), write("third.bin", b"new"),
           lambda w: (w.model / "extra.bin").unlink())
BESIDE = (write("hf_quant_config.json", b'{"scale": 2}'), write("preprocessor_config.json", b'{"mean": 1}'))
FILES = (*BESIDE, write("config.json", b'{"rope_theta": 2}'), write("kv_cache_scales.json", b"{}"))
GROUP = Made(group_id=0, tokens_per_block=32, layer_names=("a", "c"))
ADAPTERS = put("engine", Made(lora_config=Made(), model_config=Made(multimodal_config=None), cache_config=Made()))
IMAGES = put("engine", Made(lora_config=None, model_config=Made(multimodal_config=Made()), cache_config=Made()))
EMBEDDINGS = put("engine", Made(lora_config=None, cache_config=Made(),
                                model_config=Made(multimodal_config=None, enable_prompt_embeds=True)))
SCALES = put("engine", Made(lora_config=None, model_config=Made(multimodal_config=None),
                            cache_config=Made(calculate_kv_scales=True)))


def hub(world: Any) -> None:
    """Weights that are not on this machine."""
    where = {Vllm: "engine.model_config.model", Sglang: "arguments.model_path", Lmcache: "name", Aibrix: "text"}[type(world)]
    put(where, "nobody/nothing")(world)


def told(value: str) -> Change:
    return both(hub, put("told", value))


TENANT = identity(lambda w: w.tenant.update(tenant="two"), lambda w: w.tenant.update(secret=b"1" * 32))


def row(title: str, vllm_cell: Cell, sglang_cell: Cell, lmcache_cell: Cell, aibrix_cell: Cell) -> tuple[str, dict[str, Cell]]:
    return title, dict(zip(ENGINES, (vllm_cell, sglang_cell, lmcache_cell, aibrix_cell)))


def told_row(title: str, vllm_cell: Cell, sglang_cell: Cell) -> tuple[str, dict[str, Cell]]:
    """Facts that LMCache and AIBrix do not pass."""
    return row(title, vllm_cell, sglang_cell, TOLD, TOLD)


NAMES = "engines/test_vllm_requests.py"
ROWS = dict([
    row("every byte of every file of weights", *[identity(*WEIGHTS)] * 4),
    row("the model's own code, and code of another model that it uses", *[identity(write("modeling_own.py", b"raise"))] * 4),
    row("files beside the weights: configuration, quantizer, scales, image processor", identity(*BESIDE), *[identity(*FILES)] * 3),
    row("weights that cannot be read here: commit, or what the operator says of them",
        identity(told("other"), both(hub, put("commit", COMMITS[0])), both(hub, put("engine.model_config.revision", COMMITS[1]))),
        identity(told("other"), both(hub, put("arguments.revision", COMMITS[0])), both(hub, put("arguments.revision", COMMITS[1]))),
        identity(told("other")), identity(told("other"))),
    told_row("random weights: their seed",
             identity(put("engine.load_config.load_format", "dummy"),
                      both(put("engine.load_config.load_format", "dummy"), put("engine.model_config.seed", 1))),
             identity(put("arguments.load_format", "dummy"),
                      both(put("arguments.load_format", "dummy"), put("arguments.random_seed", 2)))),
    told_row("configuration as overridden: rotary embedding and its scaling, sizes, windows",
             identity(config(rope_theta=1e6), config(rope_parameters={"rope_type": "yarn", "factor": 4.0}),
                      config(rope_parameters={"rope_type": "yarn", "factor": 8.0}), config(sliding_window=512),
                      config(hidden_size=128)),
             identity(put("arguments.json_model_override_args", '{"rope_theta": 1e6}'),
                      put("arguments.json_model_override_args", '{"rope_scaling": {"factor": 4}}'))),
    told_row("longest prompt, where the rotary embedding depends on it",
             identity(config(rope_parameters={"rope_type": "longrope"}),
                      both(config(rope_parameters={"rope_type": "longrope"}), put("engine.model_config.max_model_len", 8192))),
             identity(put("arguments.context_length", 8192))),
    told_row("sliding window switched off, attention in chunks",
             identity(put("engine.model_config.disable_sliding_window", True), config(attention_chunk_size=8192)),
             identity(put("arguments.disable_hybrid_swa_memory", True),
                      put("arguments.json_model_override_args", '{"attention_chunk_size": 8192}'))),
    told_row("element type of the computation", identity(put("engine.model_config.dtype", "torch.float16")),
             identity(put("arguments.dtype", "float16"))),
    told_row("quantization of the weights, also while they are loaded",
             identity(put("engine.model_config.quantization", "fp8"),
                      put("engine.model_config.quantization_config", {"linear": "fp8_per_token"})),
             identity(put("arguments.quantization", "fp8"), put("arguments.+modelopt_quant", "fp8"))),
    told_row("how weights are loaded",
             identity(put("engine.load_config.load_format", "pt"),
                      put("engine.load_config.model_loader_extra_config", {"pattern": "a"}),
                      both(put("engine.load_config.load_format", "tensorizer"), put("told", "1"))),
             identity(put("arguments.load_format", "pt"), put("arguments.+model_loader_extra_config", "{}"))),
    told_row("element type of the cache, and which kind of fp8",
             identity(put("engine.cache_config.cache_dtype", "fp8_e4m3"), put("engine.cache_config.cache_dtype", "fp8_e5m2")),
             identity(put("arguments.kv_cache_dtype", "fp8_e4m3"), put("arguments.kv_cache_dtype", "fp8_e5m2"),
                      put("pool.dtype", "torch.float8_e5m2"))),
    told_row("layers that are left out of a quantized cache",
             identity(put("engine.cache_config.kv_cache_dtype_skip_layers", ["3"])), NONE),
    told_row("element type of a sparse-attention index", identity(put("engine.attention_config.indexer_kv_dtype", "fp8")),
             identity(put("arguments.qsa_indexer_dtype", "fp8"))),
    row("scales of a quantized cache, of the checkpoint or a file", identity(*BESIDE),
        identity(*BESIDE, lambda w: w.scales.write_text('{"scale": 2}')), identity(*BESIDE), identity(*BESIDE)),
    row("scales of a quantized cache that are made at run time", refused(put("engine.cache_config.+calculate_kv_scales", True)),
        NONE, refused(SCALES), refused(SCALES)),
    told_row("recurrent states: element type, rounding, what is kept of them",
             identity(put("engine.cache_config.mamba_cache_dtype", "float16"),
                      put("engine.cache_config.mamba_ssm_cache_dtype", "float32"),
                      put("engine.mamba_config.enable_stochastic_rounding", True), put("engine.cache_config.mamba_block_size", 64)),
             identity(put("arguments.mamba_ssm_dtype", "float16"),
                      put("arguments.+enable_mamba_cache_stochastic_rounding", True), put("pool.+state_page_bytes", 64))),
    told_row("draft model: its weights, settings and cache",
             identity(write("model.bin", b"other", "draft"), put("engine.speculative_config", None),
                      put("engine.speculative_config.quantization", "fp8"), put("engine.speculative_config.kv_cache_dtype", "fp8")),
             identity(write("model.bin", b"other", "draft"), put("arguments.speculative_draft_model_path", None),
                      put("arguments.speculative_draft_model_quantization", "fp8"),
                      put("arguments.+speculative_draft_kv_cache_dtype", "fp8_e5m2"))),
    row("tokens of a block",
        identity(put("offload.groups", (Made(group_id=0, tokens_per_block=64, layer_names=("a", "b")),))),
        identity(put("tokens", 32)), identity(both(put("tokens", 512), put("shapes", [[2, 2, 512, 32]]))),
        identity(put("spec.block_ntokens", 32))),
    row("layers, heads, size of a head",
        identity(both(put("shape", (4, 32, 32)), put("bytes", 8192)), both(put("shape", (2, 32, 64)), put("bytes", 16384))),
        identity(put("pool.layer_num", 3), put("pool.start_layer", 1), put("pool.head_num", 4), put("pool.head_dim", 32)),
        identity(put("shapes", [[2, 4, 256, 32]]), put("shapes", [[2, 2, 256, 64]])),
        identity(put("spec.tensor_spec.heads", [2, 3]), put("spec.tensor_spec.layers", [0, 2]),
                 put("spec.tensor_spec.head_size", 64), put("spec.block_nbytes", 4096))),
    row("order of a block's bytes in memory",
        identity(both(put("order", (2, 1, 3)), put("offload.kv_cache_layout", "LBNHC"), put("instructions", "other"))),
        identity(put("pool.layout", "layer_first"), put("pieces", [4096])),
        identity(put("shapes", [[2, 256, 2, 32]]), both(put("latent", True), put("shapes", [[1, 2, 256, 64]]))),
        identity(put("spec.block_layout", Made(name="NCLD")))),
    row("attention kernels", identity(put("kernels", "FLASHINFER")), identity(put("arguments.attention_backend", "triton")), NONE,
        NONE),
    row("instructions or device that the order is chosen by", identity(put("instructions", "capability 10.0")),
        identity(put("device", "capability (10, 0)")), NONE, NONE),
    row("version of the engine", identity(put("version", "0.33")), *[identity(put("version", "0.9"))] * 3),
    row("tensor-parallel rank and size",
        identity(both(put("ranks", 2), put("offload.parallel.world_size", 2), put("offload.parallel.tp_size", 2),
                      put("bytes", 8192)),
                 both(put("rank", 1), put("ranks", 2), put("offload.parallel.tp_size", 2), put("bytes", 8192))),
        identity(put("storage.tp_size", 2), both(put("storage.tp_rank", 1), put("storage.tp_size", 2))),
        identity(put("kv_rank", 2 << 24 | 2 << 8), put("kv_rank", 2 << 24 | 1 << 16 | 2 << 8 | 1)),
        identity(put("ranks", 2), put("spec.tensor_spec.heads", [4, 5]))),
    row("pipeline-parallel rank and size",
        identity(both(put("offload.parallel.pp_size", 2), put("offload.parallel.world_size", 2), put("shape", (2, 32, 16)),
                      put("bytes", 2048))),
        identity(put("storage.pp_size", 2), both(put("storage.pp_size", 2), put("storage.pp_rank", 1))),
        identity(put("kv_rank", 4 << 24 | 2 << 8), put("kv_rank", 4 << 24 | 3 << 16 | 2 << 8)),
        identity(put("spec.tensor_spec.layers", [2, 3]))),
    row("context-parallel rank and size",
        identity(put("engine.parallel_config.prefill_context_parallel_size", 2)),
        identity(put("storage.attn_cp_size", 2), both(put("storage.attn_cp_size", 2), put("storage.attn_cp_rank", 1)),
                 put("arguments.cp_strategy", "zigzag")),
        identity(put("kv_rank", 2 << 24 | 2 << 8)), TOLD),
    row("decode-context-parallel size, and which tokens a rank has",
        identity(put("engine.parallel_config.decode_context_parallel_size", 2),
                 put("engine.parallel_config.cp_kv_cache_interleave_size", 16)),
        refused(put("storage.dcp_size", 2)), identity(put("kv_rank", 2 << 24 | 2 << 8)), TOLD),
    row("groups of layers", identity(put("offload.groups", (GROUP,))),
        identity(put("pool.+target_layer_num", 1)),
        identity(both(put("group", 1), put("shapes", [[2, 1, 256, 32], [2, 1, 256, 32]]))),
        identity(put("spec.tensor_spec.layers", [0, 3]))),
    row("tokens before and in the block", hashed(f"{NAMES}::test_names_have_all_tokens_in_them_up_to_their_own"),
        hashed("engines/test_sglang_names.py::test_names_have_all_tokens_in_them_up_to_their_own"),
        hashed("engines/test_lmcache_names.py::test_names_have_all_tokens_in_them_up_to_their_own"),
        hashed("engines/test_aibrix_names.py::test_names_have_all_tokens_in_them_up_to_their_own")),
    row("LoRA adapter: name", hashed(f"{NAMES}::test_names_have_salt_adapter_and_embeddings_in_them_from_the_first_block_on"),
        hashed("engines/test_sglang_names.py::test_adapter_and_salt_are_in_all_names"), refused(ADAPTERS), refused(ADAPTERS)),
    row("LoRA adapter: every byte of its files",
        hashed("engines/test_vllm_identity.py::test_an_adapter_that_was_trained_again_is_a_miss"),
        identity(write("model.bin", b"other", "adapter"), put("arguments.lora_paths", [])), refused(ADAPTERS), refused(ADAPTERS)),
    row("LoRA: element type, which modules",
        identity(put("engine.lora_config", Made(lora_dtype="float16", max_loras=1)),
                 put("engine.lora_config", Made(lora_dtype="auto", target_modules=["o_proj"])),
                 put("engine.lora_config", Made(enable_tower_connector_lora=True))),
        identity(put("arguments.lora_target_modules", ["o_proj"])), refused(ADAPTERS), refused(ADAPTERS)),
    row("images, sound: content", hashed(f"{NAMES}::test_names_have_the_image_in_them_from_its_block_on"),
        hashed("engines/test_sglang_names.py::test_images_are_in_the_names_from_their_page_on"),
        hashed("engines/test_lmcache_names.py::test_images_are_in_the_names_from_their_chunk_on"), refused(IMAGES)),
    row("what is made of images: processor, pruning, encoder",
        identity(put("engine.model_config.multimodal_config", Made(mm_processor_kwargs={"do_pad": True})),
                 put("engine.model_config.multimodal_config", Made(video_pruning_rate=0.5)),
                 put("engine.model_config.multimodal_config", Made(mm_encoder_attn_dtype="fp8")),
                 put("engine.model_config.multimodal_config", Made(media_io_kwargs={"video": {"num_frames": 8}}))),
        identity(put("arguments.mm_process_config", {"image": {"max_pixels": 1}}),
                 put("arguments.+disable_fast_image_processor", True)),
        TOLD, refused(IMAGES)),
    row("embeddings instead of tokens",
        hashed(f"{NAMES}::test_names_have_salt_adapter_and_embeddings_in_them_from_the_first_block_on"), NONE,
        refused(EMBEDDINGS), refused(EMBEDDINGS)),
    row("algorithm and seed of the names of blocks",
        identity(put("engine.cache_config.prefix_caching_hash_algo", "sha256_cbor"),
                 lambda w: w.monkeypatch.setenv("PYTHONHASHSEED", "7")),
        identity(lambda w: w.monkeypatch.setattr(sglang, "HASHING", "another")),
        identity(both(put("hash_bytes", 8), put("config.pre_caching_hash_algorithm", "builtin")),
                 both(put("hash_bytes", 16), put("config.pre_caching_hash_algorithm", "sha256"))),
        identity(put("builder", Made(signature="hex")), put("connection", "other"),
                 both(put("builder", Made(signature="ro", hasher=Made())), put("weak", True)))),
    row("names that are short or not cryptographic", refused(put("engine.cache_config.prefix_caching_hash_algo", "xxhash"),
                                                              put("engine.cache_config.prefix_caching_hash_algo", "xxhash_cbor"),
                                                              put("engine.cache_config.prefix_caching_hash_algo", "fnv")),
        refused(write("config.json", b'{"vision_config": {}}')),
        refused(put("weak", False), both(put("hash_bytes", 8), put("weak", False))),
        refused(put("builder", Made(signature="ro", hasher=Made())), put("builder", Made(signature="sim", hasher=Made())))),
    row("tenant, secret, epoch", TENANT, TENANT, TENANT, TENANT),
])
WORLDS: dict[str, type[World]] = {"vLLM": Vllm, "SGLang": Sglang, "LMCache": Lmcache, "AIBrix": Aibrix}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)

    def make(engine: str) -> Any:
        """A new one, in the place of the last."""
        shutil.rmtree(tmp_path / "world", ignore_errors=True)
        world = WORLDS[engine](tmp_path / "world")
        world.monkeypatch = monkeypatch  # type: ignore[attr-defined]
        return world

    return make


def texts(world: Callable[[str], Any], engine: str, *changes: Change) -> set[str]:
    """Of a new world, after these changes, which are undone."""
    one = world(engine)
    with one.monkeypatch.context() as patched:
        one.monkeypatch = patched
        for change in changes:
            change(one)
        return set(one.texts())


def changed() -> list[Any]:
    return [pytest.param(engine, cell, i, id=f"{engine}: {title} {i}") for title, cells in ROWS.items()
            for engine, cell in cells.items() for i in range(len(cell.changes))]


@pytest.mark.parametrize("engine, cell, i", changed())
def test_each_row_alone_makes_a_miss(world: Callable[[str], Any], engine: str, cell: Cell, i: int) -> None:
    before = texts(world, engine)
    assert before == texts(world, engine)  # equal in everything is a hit
    if cell.word == "refused":
        with pytest.raises(ConfigurationError) as caught:
            texts(world, engine, cell.changes[i])
        assert len(str(caught.value)) > 80  # the fault and the remedy
        return
    after = texts(world, engine, cell.changes[i])
    assert not before & after
    for other in cell.changes[:i]:  # two changes are not equal either
        assert after != texts(world, engine, other)


def test_the_table_in_the_documents_has_the_same_rows() -> None:
    found = {}
    for line in (HERE.parents[2] / "docs" / "formats.md").read_text().split("## What KV depends on")[1].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 5 and not set(line) <= set("|- "):
            found[cells[0]] = cells[1:]
    head = found.pop("what")
    assert head == list(ENGINES)
    assert list(found) == list(ROWS)
    assert found == {title: [cells[engine].word for engine in ENGINES] for title, cells in ROWS.items()}


def test_each_row_is_shown() -> None:
    for title, cells in ROWS.items():
        for engine, cell in cells.items():
            assert cell.word in ("identity", "hash", "told", "refused", "none")
            assert bool(cell.changes) == (cell.word in ("identity", "told", "refused")), (title, engine)
            if cell.word == "hash":
                file, _, name = cell.test.partition("::")
                assert re.search(rf"def {name}\(", (HERE / file).read_text()), (title, engine, cell.test)


# ---- what stays the same

@pytest.mark.parametrize("engine, change", [
    ("vLLM", put("engine.model_config.enforce_eager", True)),
    ("vLLM", put("engine.model_config.served_model_name", "another name")),
    ("vLLM", put("engine.model_config.max_model_len", 8192)),
    ("vLLM", put("engine.cache_config.gpu_memory_utilization", 0.5)),
    ("vLLM", put("engine.cache_config.num_gpu_blocks", 1000)),
    ("vLLM", put("engine.lora_config", Made(lora_dtype="auto", max_loras=4, target_modules=None))),
    ("vLLM", put("engine.model_config.multimodal_config", Made(limit_per_prompt={"image": 1}, mm_processor_cache_gb=1))),
    ("vLLM", config(transformers_version="9", _name_or_path="/elsewhere")),
    ("vLLM", write("tokenizer.json", b"{}")),
    ("vLLM", write("config.json", b'{"in": "vLLM\'s own form already"}')),
    ("SGLang", put("arguments.port", 30001)),
    ("SGLang", write("README.md", b"read me")),
    ("LMCache", write("README.md", b"read me")),
    ("AIBrix", write("README.md", b"read me")),
])
def test_what_says_nothing_of_kv_is_no_miss(world: Callable[[str], Any], engine: str, change: Change) -> None:
    assert texts(world, engine) == texts(world, engine, change)


def test_a_draft_that_needs_no_model_is_no_miss(world: Callable[[str], Any]) -> None:
    ngram = Made(method="ngram", model=None, num_speculative_tokens=4, prompt_lookup_max=4)
    assert (texts(world, "vLLM", put("engine.speculative_config", None))
            == texts(world, "vLLM", put("engine.speculative_config", ngram)))


def test_weak_names_are_taken_where_the_operator_says_so(world: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    one = world("vLLM")
    one.engine.cache_config.prefix_caching_hash_algo = "xxhash"
    with pytest.raises(ConfigurationError, match="xxhash, which is not cryptographic.*sha256.*weak_hashes"):
        one.identities()
    one.weak = True
    seventh = one.texts()
    monkeypatch.setenv("PYTHONHASHSEED", "8")
    assert not set(seventh) & set(one.texts())
    monkeypatch.delenv("PYTHONHASHSEED")
    with pytest.raises(ConfigurationError, match="identity pages needs hashes that are equal in all processes"):
        one.identities()
    image = world("SGLang")
    write("config.json", b'{"vision_config": {}}')(image)
    with pytest.raises(ConfigurationError, match="SGLang names blocks by 8 bytes.*--language-model-only.*weak_hashes"):
        image.identities()
    image.arguments.language_model_only = True
    image.identities()
    image.arguments.language_model_only, image.weak = False, True
    image.identities()


def test_a_model_that_sees_and_is_not_asked_to_is_taken_by_aibrix(world: Callable[[str], Any]) -> None:
    one = world("AIBrix")
    one.engine = Made(lora_config=None, cache_config=Made(), model_config=Made(multimodal_config=Made(language_model_only=True)))
    one.identities()
    one.engine.model_config.multimodal_config.language_model_only = False
    with pytest.raises(ConfigurationError, match="this engine takes images.*--language-model-only"):
        one.identities()


def test_weights_of_no_name_are_refused_with_the_remedy(world: Callable[[str], Any]) -> None:
    for engine in ("vLLM", "SGLang", "LMCache"):
        one = world(engine)
        hub(one)
        with pytest.raises(ConfigurationError, match="nobody/nothing.*not on this machine.*option revision"):
            one.identities()
    streamed = world("vLLM")
    streamed.engine.model_config.model_weights = "s3://bucket/model"
    with pytest.raises(ConfigurationError, match="s3://bucket/model.*option revision"):
        streamed.identities()
    streamed.told = "2026-01-01"
    before = streamed.texts()
    streamed.engine.model_config.model_weights = "s3://bucket/other"
    assert not set(before) & set(streamed.texts())


def test_code_of_another_model_is_read_where_it_is(world: Callable[[str], Any], tmp_path: Path) -> None:
    def of(code: str) -> Any:
        place = tmp_path / "hub" / "models--org--code"
        (place / "snapshots" / COMMITS[0]).mkdir(parents=True, exist_ok=True)
        (place / "refs").mkdir(exist_ok=True)
        (place / "refs" / "main").write_text(COMMITS[0])
        (place / "snapshots" / COMMITS[0] / "modeling.py").write_text(code)
        return texts(world, "vLLM", config(auto_map={"AutoModel": "org/code--modeling.Model"}),
                     put("engine.model_config.trust_remote_code", True))

    assert of("one") == of("one") and not of("one") & of("two")
    gone = world("vLLM")
    gone.config["auto_map"] = {"AutoModel": "org/gone--modeling.Model"}
    gone.identities()  # vLLM does not run it
    gone.engine.model_config.trust_remote_code = True
    with pytest.raises(ConfigurationError, match="org/gone is not in Hugging Face's cache"):
        gone.identities()
    gone.engine.model_config.code_revision = COMMITS[1]
    gone.identities()


def test_values_are_the_same_text_in_every_process() -> None:
    import enum

    class Kind(enum.Enum):
        ONE = 1

    class Inner:
        pass

    value = Made(a={"x": {3, 1, 2}}, b=Kind.ONE, c=Inner(), d=lambda: 0, e=Path("/p"), f=(1, None), _hidden=1, g="auto", h=None)
    found = fields_of(value, ("f",))
    assert found["a"] == {"x": ["1", "2", "3"]} and found["b"] == "ONE" and found["e"] == "/p"
    assert set(found) == {"a", "b", "c", "d", "e"}
    assert "0x" not in json.dumps(found) and found["c"].endswith("Inner") and found["d"].endswith("<lambda>")
    assert plain(True) is True and plain(1.5) == 1.5
