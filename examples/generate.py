"""Text from a language model in a GGUF file of the Llama family, on this machine's processor.

python examples/generate.py model.gguf "Once upon a time" --tokens 128

Needs the package luminal[gguf], and transformers, which reads the file's tokenizer. The prompt and one token are two
compilations; both are kept on disk, so that a second run begins at once.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

import luminal as lm


def next_token(logits: Tensor, temperature: float, generator: torch.Generator) -> int:
    """The likeliest token of logits f32 [vocabulary], or one drawn at a temperature above 0."""
    if temperature <= 0:
        return int(logits.argmax())
    return int(torch.multinomial(torch.softmax(logits / temperature, 0), 1, generator=generator))


def tokens_of(
    step: Callable[..., Tensor], prompt: list[int], most: int, pick: Callable[[Tensor], int], ends: set[int]
) -> Iterator[int]:
    """So many tokens after a prompt, fewer where one of `ends` comes; each is seen by the model at its own position."""
    given, start = prompt, 0
    for _ in range(most):
        ids, positions = torch.tensor([given]), torch.arange(start, start + len(given))
        filled = start + len(given)
        token = pick(step(ids, positions, 1, filled)[0, -1])
        if token in ends:
            return
        yield token
        start, given = filled, [token]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, help="a GGUF file with Q8_0, Q4_0, Q4_K, Q6_K or float weights")
    parser.add_argument("prompt")
    parser.add_argument("--tokens", type=int, default=128, help="at most so many (default: 128)")
    parser.add_argument(
        "--context", type=int, default=1024, help="tokens in all, prompt included (default: 1024)"
    )
    parser.add_argument(
        "--temperature", type=float, default=0.0, help="0 takes the likeliest token (default: 0)"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)

    from transformers import AutoTokenizer

    model = lm.load_gguf(options.model).model(options.context)
    tokenizer = AutoTokenizer.from_pretrained(options.model.parent, gguf_file=options.model.name)
    prompt: list[int] = tokenizer(options.prompt)["input_ids"]
    most = min(options.tokens, options.context - len(prompt))
    if not prompt or most < 1:
        parser.error(f"the prompt has {len(prompt)} tokens; between 1 and {options.context - 1} are possible")
    generator = torch.Generator().manual_seed(options.seed)
    step = torch.compile(model, backend="luminal", dynamic=True, options={"freeze": True})

    times, tokens, shown = [time.perf_counter()], list(prompt), ""

    def show() -> None:
        """Print what has been added; a character of which bytes are missing waits for them."""
        nonlocal shown
        text = tokenizer.decode(tokens, skip_special_tokens=True).rstrip("\ufffd")
        print(text[len(shown) :], end="", flush=True)
        shown = text

    def pick(logits: Tensor) -> int:
        return next_token(logits, options.temperature, generator)

    with torch.inference_mode():
        show()
        for token in tokens_of(step, prompt, most, pick, {tokenizer.eos_token_id}):
            times.append(time.perf_counter())
            tokens.append(token)
            show()
    print()
    if len(times) > 3:  # the second token compiles for one, the third is the first that is only computed
        rate = (len(times) - 3) / (times[-1] - times[2])
        print(
            f"{len(prompt)} tokens of the prompt and two more: {times[2] - times[0]:.1f} s with compilation",
            file=sys.stderr,
        )
        print(f"{rate:.1f} tokens per second on {torch.get_num_threads()} threads", file=sys.stderr)


if __name__ == "__main__":
    main()
