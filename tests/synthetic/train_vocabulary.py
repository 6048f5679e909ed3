#!/usr/bin/env python3
"""Trains the small byte-level BPE vocabulary of the synthetic models (needs PyPI `tokenizers`).

    train_vocabulary.py CORPUS OUT_DIRECTORY [SIZE]

Writes tokens.txt (line n is token n) and merges.txt, in GPT-2's byte-to-unicode form. The result is kept
in tests/data/synthetic; run this again only when the corpus changes.
"""

import json
import sys
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

CONTROL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def train(corpus: Path, size: int) -> dict:
    tokenizer = Tokenizer(models.BPE())
    # What the pre-tokenizer `smollm` does: single digits, then GPT-2's pattern.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=CONTROL_TOKENS,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([corpus.read_text(encoding="utf-8")], trainer)
    return json.loads(tokenizer.to_str())["model"]


def main() -> None:
    corpus, out = Path(sys.argv[1]), Path(sys.argv[2])
    size = int(sys.argv[3]) if len(sys.argv) > 3 else 768
    model = train(corpus, size)
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    assert [model["vocab"][token] for token in tokens] == list(range(size)), "the corpus is too small"
    (out / "tokens.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    (out / "merges.txt").write_text("\n".join(merges) + "\n", encoding="utf-8")
    print(f"{len(tokens)} tokens, {len(merges)} merges")


if __name__ == "__main__":
    main()
