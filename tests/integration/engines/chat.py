"""Two chats take turns on one vLLM with KV space for one of them. Shows how long each turn waits for its first token,
with libkvbm and without. Plotted in the terminal, and to a PNG.

Usage: chat.py MODEL_DIRECTORY [--turns N] [--png FILE] [--json] [--check]
"""
from __future__ import annotations

import argparse
import json
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, Sequence

sys.path.insert(0, str(Path(__file__).parent))

from engine import Engine, EngineError  # noqa: E402

# 64 blocks of 32 tokens: less than the two chats have together from the fourth turn on.
KV_BLOCKS = 64
CROWDED_FROM = 3
ANSWER_TOKENS = 32
CONNECTOR = {"kv_connector": "KvbmConnector", "kv_connector_module_path": "libkvbm.vllm.connector",
             "kv_role": "kv_both", "kv_load_failure_policy": "recompute",
             "kv_connector_extra_config": {"settings": {"host.capacity": "1GiB"}}}
# Topics of the two chats, and the rest of each question: enough words that a turn has some 330 tokens.
CHATS = ("the keeping of bees through a cold winter", "the building of a small wooden boat")
ASPECTS = ("what to buy first and what can be made at home", "the mistakes that beginners make and how to avoid them",
           "the work of each month from spring to autumn", "what it costs and where money can be saved",
           "how to tell early that something goes wrong", "what experienced people disagree about",
           "the tools, their care and their storage", "how to teach it to a child")
DETAIL = ("Please be concrete, give numbers where there are any, and say which of the things that you told me before "
          "still hold and which you would now put in another way. I have read two books and talked to a neighbour who "
          "has done this for thirty years; both said that patience matters more than equipment, that notes taken on the "
          "day are worth more than memory, and that the first year is for watching. I live near the coast, where it "
          "rains a lot and seldom freezes for long, I have the weekends and two evenings, and I would rather do a few "
          "things well than many things badly. Assume that I know nothing about the words that specialists use, so "
          "explain each one when it comes for the first time. What I am after is a plan for the coming year that a "
          "busy person can keep: a list of the steps in the order in which they must be done, for each of them the days "
          "or hours that it takes, what has to be ready before it can begin, the sign by which I see that it is done, "
          "and what I can leave out when time runs short. Where opinions differ, tell me both sides in a sentence each "
          "and then which one you would follow in my place. Do not repeat what I said, and end with the one question "
          "that you would most like me to answer before we go on. ")


@dataclass
class Turn:
    chat: int
    number: int
    prompt_tokens: int
    cached: int
    seconds: float
    text: str


def question(chat: int, turn: int) -> str:
    return (f"<|im_start|>user\nLet us talk about {CHATS[chat]}: {ASPECTS[turn % len(ASPECTS)]}. {DETAIL}<|im_end|>\n"
            "<|im_start|>assistant\n")


def converse(model: Path, turns: int, connector: Optional[dict[str, Any]]) -> list[Turn]:
    """Both chats, turn by turn, on an engine of their own."""
    llm: dict[str, Any] = {"num_gpu_blocks_override": KV_BLOCKS, "max_model_len": 32 * (KV_BLOCKS - 2)}
    if connector is not None:
        llm["kv_transfer_config"] = connector
    said = ["", ""]
    done: list[Turn] = []
    with Engine(model, llm) as engine:
        engine.generate(["<|im_start|>user\nHello<|im_end|>\n"], 4)  # the first call of an engine is not like the others
        for number in range(turns):
            for chat in range(len(CHATS)):
                said[chat] += question(chat, number)
                # An answer's length is what the next prompt grows by: both runs are to have the same prompts.
                output = engine.generate([said[chat]], ANSWER_TOKENS, detokenize=True)[0]
                n = engine.run(f"result = len(llm.get_tokenizer().encode({said[chat]!r}))")
                seconds = output.first_token_s if output.first_token_s is not None else output.seconds
                done.append(Turn(chat, number, int(n), output.cached, seconds, output.text))
                said[chat] += output.text + "<|im_end|>\n"
                progress(len(done), turns * len(CHATS), connector is not None)
    return done


def progress(done: int, of: int, with_kvbm: bool) -> None:
    """One line, written anew on a terminal; elsewhere its last state alone."""
    line = f"  {'with' if with_kvbm else 'without'} libkvbm: turn {done} of {of}"
    if sys.stderr.isatty():
        print(f"\r{line}", end="\n" if done == of else "", file=sys.stderr, flush=True)
    elif done == of:
        print(line, file=sys.stderr, flush=True)


def show(without: Sequence[Turn], having: Sequence[Turn]) -> None:
    """A line for every turn: two bars of the time to the first token."""
    longest = max(turn.seconds for turn in (*without, *having))
    print("\nTime to first token, two chats in turns; # computed again, = with libkvbm")
    print("turn  prompt     without              with       from cache")
    for plain, kept in zip(without, having):
        print(f"{plain.chat + 1}.{plain.number + 1:<3} {kept.prompt_tokens:>6}  {plain.seconds * 1000:>7.0f} ms "
              f"{bar(plain.seconds / longest, '#')}")
        print(f"{'':>14}{kept.seconds * 1000:>7.0f} ms {bar(kept.seconds / longest, '=')} {kept.cached} tokens")


def bar(share: float, mark: str) -> str:
    return mark * max(1, round(share * 40))


def plot(without: Sequence[Turn], having: Sequence[Turn], file: Path) -> bool:
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5))
    for turns, label, style in ((without, "vLLM alone", "o--"), (having, "vLLM with libkvbm", "s-")):
        axes.plot(range(len(turns)), [turn.seconds * 1000 for turn in turns], style, label=label)
    axes.set_xticks(range(len(having)), [f"{turn.chat + 1}.{turn.number + 1}\n{turn.prompt_tokens}" for turn in having])
    axes.set_xlabel("chat and turn, tokens of the prompt")
    axes.set_ylabel("time to first token, ms")
    axes.set_title("Two chats in turns, a KV space for one of them")
    axes.set_ylim(bottom=0)
    axes.legend()
    figure.tight_layout()
    figure.savefig(file, dpi=120)
    return True


def facts(without: Sequence[Turn], having: Sequence[Turn]) -> dict[str, Any]:
    late = [i for i, turn in enumerate(without) if turn.number >= CROWDED_FROM]
    alone = statistics.median(without[i].seconds for i in late)
    kept = statistics.median(having[i].seconds for i in late)
    return {"turns": len(having), "first_token_ms_without": alone * 1000, "first_token_ms_with": kept * 1000,
            "ratio": alone / kept, "cached_without": sum(turn.cached for turn in without),
            "cached_with": sum(turn.cached for turn in having),
            "same_answers": sum(a.text == b.text for a, b in zip(without, having))}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a directory in the form of Hugging Face's")
    parser.add_argument("--turns", type=int, default=5, help="of each chat, 4 or 5 (5)")
    parser.add_argument("--png", type=Path, default=Path("first_token.png"))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true", help="only see whether these arguments can be meant")
    options = parser.parse_args()
    if not CROWDED_FROM < options.turns <= 5:
        parser.error("--turns is 4 or 5: the KV space holds no more, and fewer do not fill it")
    if options.check:
        return 0
    if not (options.model / "config.json").is_file():
        parser.error(f"{options.model} is no model: there is no config.json in it")
    try:
        without = converse(options.model, options.turns, None)
        having = converse(options.model, options.turns, CONNECTOR)
    except EngineError as error:
        print(f"demo: error: {error}", file=sys.stderr)
        return 1
    found = facts(without, having)
    if options.json:
        print(json.dumps(found))
        return 0
    show(without, having)
    print(f"\nFrom the fourth turn on, median to the first token: {found['first_token_ms_without']:.0f} ms alone, "
          f"{found['first_token_ms_with']:.0f} ms with libkvbm, {found['ratio']:.1f} times faster.")
    print(f"Prompt tokens that were not computed: {found['cached_without']} and {found['cached_with']}; "
          f"{found['same_answers']} of {found['turns']} answers word for word the same.")
    if plot(without, having, options.png):
        print(f"Plotted in {options.png}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
