"""Engines in processes of their own, for the acceptance tests: started with a dictionary of arguments, asked for
tokens, log-probabilities, cached tokens, KV bytes and metrics, and always ended.

    with Engine(model, {"kv_transfer_config": {...}}) as engine:
        first = engine.generate([prompt])[0]
        engine.reset()
        again = engine.generate([prompt], logprobs=0)[0]
        assert again.cached == 288 and again.tokens == first.tokens
"""
from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Optional, Sequence, Union

HERE = Path(__file__).parent
Prompt = Union[str, Sequence[int]]
# Default options of every engine. CPU attention needs blocks of a multiple of 32 tokens.
LLM = {"dtype": "bfloat16", "max_model_len": 2048, "enforce_eager": True, "enable_prefix_caching": True,
       "block_size": 32, "disable_log_stats": False, "seed": 0, "max_num_seqs": 16}
TINY = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 128,
        "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 32, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "vocab_size": 512, "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": True,
        "torch_dtype": "bfloat16"}
# An engine that is past its time, and did not get on for so long, is not waited for.
_STILL_S = 30
# A model directory with nothing but a configuration has random weights, the same ones for the same seed.
RANDOM = {"load_format": "dummy", "skip_tokenizer_init": True}


class EngineError(RuntimeError):
    """The engine said no, died, or did not answer in time; the message ends with the end of its log."""


@dataclass(frozen=True)
class Output:
    tokens: list[int]
    text: str
    logprobs: Optional[list[float]]  # of the tokens that were chosen
    cached: int  # prompt tokens that were not computed
    first_token_s: Optional[float]
    finish: str
    seconds: float  # of the whole call

    def agrees(self, other: Output, noise: float) -> bool:
        """Whether both have the same tokens, with the same log-probabilities but for noise.

        Where noise chose between two equally likely tokens, the tokens after them are not compared: on some processors
        matrix products give other last bits for rows that are computed in other pieces."""
        assert self.logprobs and other.logprobs
        for a, b, x, y in zip(self.tokens, other.tokens, self.logprobs, other.logprobs):
            if abs(x - y) > noise:
                return False
            if a != b:
                break
        return len(self.tokens) == len(other.tokens)


def tiny_model(directory: Path, **changes: Any) -> Path:
    """A model of two layers with random weights: use it with **RANDOM."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(TINY | changes))
    return directory


class Engine:
    """A vLLM on the CPU. `llm` are arguments of vllm.LLM beside those in LLM above; `kv_gib` is its KV space (whole
    GiB; smaller ones: {"num_gpu_blocks_override": n}). One at a time fits a small machine."""

    def __init__(self, model: Path, llm: Optional[dict[str, Any]] = None, *, kv_gib: int = 1,
                 env: Optional[dict[str, str]] = None, start_s: float = 240, log: Optional[Path] = None) -> None:
        self.log = log or Path(tempfile.mkstemp(prefix="engine-", suffix=".log")[1])
        reads, writes = os.pipe()
        self._answers, self._rest = reads, b""
        try:
            with open(self.log, "ab") as log_file:
                self.process = subprocess.Popen(
                    [sys.executable, str(HERE / "vllm_child.py"), str(writes)], stdin=subprocess.PIPE, stdout=log_file,
                    stderr=log_file, env=_environment(kv_gib, env or {}), pass_fds=[writes], start_new_session=True)
        finally:
            os.close(writes)
        try:
            began = time.monotonic()
            self.call("start", timeout_s=start_s, llm={**LLM, "model": str(model), **(llm or {})})
            self.start_s = time.monotonic() - began
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        return self.process.pid

    # ---- asking

    def generate(self, prompts: Sequence[Prompt], max_tokens: int = 8, *, timeout_s: float = 240,
                 **options: Any) -> list[Output]:
        """Runs prompts (texts or token lists) together. Options: logprobs=n, salt=...,
        adapter=(name, number, directory) of a LoRA, and vLLM's SamplingParams."""
        self.send("generate", prompts=list(prompts), max_tokens=max_tokens, **options)
        return self.generated(timeout_s)

    def generated(self, timeout_s: float = 240) -> list[Output]:
        """The outputs of a generate that was sent."""
        return [Output(**item) for item in self.answer(timeout_s)]

    def reset(self, connector: bool = False) -> bool:
        return bool(self.call("reset", connector=connector))

    def kv(self) -> dict[str, str]:
        """Hash of every block in vLLM's prefix cache -> digest of its KV bytes."""
        return dict(self.call("kv"))

    def blocks(self) -> int:
        """Blocks of vLLM's KV space."""
        return int(self.call("blocks"))

    def metrics(self) -> dict[str, float]:
        return dict(self.call("metrics"))

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        return sum(value for key, value in self.metrics().items() if key.split("{")[0] == name)

    def run(self, code: str, timeout_s: float = 60) -> Any:
        """Executes Python in the engine's process, with `llm` and `child`; what it sets as `result` comes back."""
        return self.call("run", timeout_s=timeout_s, code=code)

    def said(self) -> str:
        """Everything that the engine has logged."""
        return self.log.read_text(errors="replace")

    # ---- the line to the child

    def call(self, what: str, *, timeout_s: float = 60, **fields: Any) -> Any:
        self.send(what, **fields)
        return self.answer(timeout_s)

    def send(self, what: str, **fields: Any) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write((json.dumps({"do": what, **fields}) + "\n").encode())
            self.process.stdin.flush()
        except OSError as error:
            raise EngineError(f"the engine has gone: {error}\n{self._tail()}") from error

    def answer(self, timeout_s: float) -> Any:
        """On a busy machine an engine gets little of the processor: one that is seen to get on, by its log or by the
        time that it computes, has four times as long."""
        began = seen = time.monotonic()
        before = self._progress()
        while b"\n" not in self._rest:
            if not select.select([self._answers], [], [], 5)[0]:
                now, progress = time.monotonic(), self._progress()
                if progress != before:
                    before, seen = progress, now
                if now - began > 4 * timeout_s or now - began > timeout_s and now - seen > _STILL_S:
                    raise EngineError(f"no answer within {now - began:.0f} s\n{self._tail()}")
                continue
            data = os.read(self._answers, 1 << 20)
            if not data:
                raise EngineError(f"the engine ended: {self.process.poll()}\n{self._tail()}")
            self._rest += data
        line, self._rest = self._rest.split(b"\n", 1)
        found = json.loads(line)
        if "error" in found:
            raise EngineError(f"{found['error']}\n{self._tail()}")
        return found["result"]

    def _progress(self) -> tuple[int, int]:
        """Bytes of its log, and whole seconds that its processes have computed."""
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue  # ended meanwhile
            if int(fields[3]) == self.process.pid:  # its session
                ticks += int(fields[11]) + int(fields[12])
        return self.log.stat().st_size, ticks // os.sysconf("SC_CLK_TCK")

    def _tail(self) -> str:
        return "\n".join(self.said().splitlines()[-40:])

    # ---- the end

    def stop(self, timeout_s: float = 60) -> None:
        """Ends it in order; what was in flight is finished."""
        if self.process.poll() is None:
            try:
                self.send("stop")
                self.process.wait(timeout_s)
            except (EngineError, subprocess.TimeoutExpired):
                pass
        self.kill()

    def kill(self) -> None:
        """SIGKILL, to it and to whatever it has started."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        if self.process.stdin is not None:
            try:
                self.process.stdin.close()
            except OSError:
                pass
        if self._answers >= 0:
            os.close(self._answers)
            self._answers = -1

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.stop() if error is None else self.kill()


def _environment(kv_gib: int, more: dict[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KVBM_")}
    return kept | {"VLLM_TARGET_DEVICE": "cpu", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1",
                   "VLLM_CPU_KVCACHE_SPACE": str(kv_gib), "VLLM_HOST_IP": "127.0.0.1", "OMP_NUM_THREADS": os.environ.get("ENGINES_THREADS", "1"),
                   "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
                   "TOKENIZERS_PARALLELISM": "false"} | more
