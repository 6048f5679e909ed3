#!/usr/bin/env python3
"""Makes token vectors for the tests of the tokenizer with PyPI `tokenizers`.

    make_vectors.py synthetic ../data/synthetic > ../data/tokenizer/synthetic.tokens.jsonl
    make_vectors.py gguf MODEL.gguf             > ../data/tokenizer/smollm2.tokens.jsonl   (needs PyPI `gguf`)
    make_vectors.py rows ../data/synthetic      > ../data/tokenizer/rows.tokens.jsonl

Each line is {"text", "ids"}, or, for `rows`, {"text"} and the ids by the name of the pre-tokenizer: text as plain
text, without BOS. The texts are the same on every run.
"""

import json
import random
import sys
import unicodedata
from pathlib import Path

from tokenizers import Regex, Tokenizer, models, pre_tokenizers

WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2003\u200a\u2028\u2029\u202f\u205f\u3000"
LOOKS_LIKE_SPACE = "\u180e\u200b\u200c\u200d\u2060\ufeff\x1c\x1f\u00ad"  # not White_Space in Unicode

FIXED = [
    "", " ", "  ", "\n", "\r\n", "\t\t", "a", " a", "a ", " a ", "  a", "a  b   c    d",
    "The quick brown fox jumps over the lazy dog.", "Line one\nLine two\r\nLine three\n\n\nLine six",
    "I'm you're he's we've they'll I'd can't 'tis 'twas o'clock rock'n'roll",
    "I'M YOU'RE HE'S WE'VE THEY'LL I'D CAN'T", "'s 't 're 've 'm 'll 'd 'x ''s '''t", "it's's 'sit' 'tar' 'reveal'",
    "don\u2019t it\u2019s we\u2019ll", "'", "''", "' s", "'\ns", "a's1's", "0", "01", "1 2", "12345", "3.14159",
    "1,000,000.00", "a1b2c3", "1st 2nd 3rd", "x2", " 7", "  7", "7 ", "7  ", "7\n8", "2024-02-29T23:59:60Z",
    "+1 (555) 010-9999", "0x1F 1e-10 1_000", "١٢٣ ४५६ ๑๒๓ 一二三 〇", "½ ¼ ² ³ ₁ ① ⑳ Ⅷ ⅷ ㊿ 𝟘𝟙 𐄇",
    "(a) [b] {c} <d> \"e\" `f` ~g~ @h #i $j %k ^l &m *n -o =p +q |r \\s /t ?u !v ,w .x :y ;z _", "...", "!!!", "?!?!",
    "--", "----", "a.b.c", "a_b_c", "a-b-c", "https://example.org/a/b?c=d&e=%20f#g", "user@example.org",
    "C:\\dir\\file.txt", "$HOME/${x:-y}", "def f(x):\n    return x ** 2\n\n\nclass A:\n\tpass\n",
    "for (int i = 0; i < n; ++i) { a[i] += b[i]; }", '{"key": [1, 2.5e-3, null, true], "s": "\\u00e9"}',
    "<p class=\"x\">A &amp; B</p>", "| a | b |\n|---|---|\n| 1 | 2 |",
    "naïve café résumé Ångström Straße ŁÓDŹ ĲSSEL ﬁn ǆ", "cafe\u0301 re\u0301sume\u0301 A\u030angstrom",
    "e\u0301\u0323 \u0301 \u0301a", "Ελληνικά Русский Українська Հայերեն ქართული", "עִבְרִית العَرَبِيَّة فارسی اردو",
    "हिन्दी বাংলা தமிழ் తెలుగు ಕನ್ನಡ മലയാളം සිංහල", "ภาษาไทย ພາສາລາວ မြန်မာ ខ្មែរ བོད་ཡིག",
    "日本語のテキスト。カタカナ ひらがな 漢字、句読点！", "中文字符，测试。繁體中文「引號」", "한국어 문장입니다. 한국어", "አማርኛ ᏣᎳᎩ ᐃᓄᒃᑎᑐᑦ ꦗꦮ 𐌰𐌱𐌲 𒀀𒀁 𓀀𓀁",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝒮𝒸𝓇𝒾𝓅𝓉 𝐁𝐨𝐥𝐝 ℕℤℚℝℂ ∀x∈ℝ: x²≥0 ∑∫√∞≠≤≥ ←↑→↓", "😀😃😄 emoji 👍🏽 👩‍💻 👩‍👩‍👧‍👦 🏳️‍🌈 🇰🇷🇫🇷 1️⃣ #️⃣ ☃️ ❤️",
    "😀a1😀 b😀", "👨‍🚀1👩‍🔬2", "€5 £6 ¥7 ₩8 ₹9 ¢1", "“quotes” ‘single’ «guillemets» – — … • † ‡ ‰ ′ ″", "\x00", "a\x00b",
    "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f\x7f",
    "\x1b[31mred\x1b[0m", "\x80\x81\x9f\xa0\xad\xff", "a\x04b\x06c\x13d", "\x04", " \x04 ", "x\x16\x1dy",
    "\ufffd\ufffe\uffff", "\U0010ffff\U0010fffd\ue000\uf8ff", "\U000f0000 \U000e0001\U000e0020",
    "\U00040000 \U00090000", "\ud7ff\ue000", "<|im_start|>user\nhi<|im_end|>", "<|endoftext|>", " <|im_end|> ",
    "<|im_end|", "|im_end|>", "<|im_<|im_end|>end|>", "<s></s><unk><pad>", "ĠtheĊĉ", "Ġ Ċ ĉ č Ń", "Ā ā Ă ń ŀ",
    "\u180e", "a\u180eb", " \u180e x", "\u180e \u180e1", "a\u200bb\u200cc\u200dd\u2060e\ufefff", "\ufeffBOM first",
    "a\u00a0b\u00a0\u00a0c \u00a0d\u00a0 e", "x\u2028y\u2029z\x85w", "\u3000全角\u3000\u3000空白\u3000", "a \n b",
    "a\n \nb", "a \n", "\n a", " \n\n ", "a\t b \tc", "trailing   ", "   leading", "tabs\t\t\tthen  spaces",
    "\r\r\n\n\r", "1  2", "1\n\n2", "  1  ", "a  1", "a 1 b", "1 a", "1  a", "1'st", "5's", "'1's", "' 1", "!1!",
    " !1 !", "1!1", " 1!",
]


# What the pre-tokenizers of `rows` treat differently: digits in groups, caseless contractions, line ends.
ROWS_FIXED = [
    "1234567890", "a1234b56", " 123 1234", "½²³₁①Ⅷ㊿", "१२३४५", "1\u0301234", "12\n345\n", "x'S'T'RE'Ve'm'LL'd",
    "'\u017f '\u017fa it'\u017f", "'s'S's", "!'s", " 's", "\n's", "'sit", "1's2", "...\n\n\r\n x", "!\r\n!\n\n", " \n \n  \n x",
    "\n\n  x", "\t\tx\t\ty", "\u3000x\u3000\u3000y", "\u00a0\u00a0x\u00a0\n", "\u2028\u2029\n\u2028x", "\x85\n\x85x\x85\x85y",
    "\u180ex\u180e\u180ey", "_x__y", "(x)((y", "-x--y", "\U0001f600x\U0001f600\U0001f600y", "\u0301x\u0301\u0301y",
    "\x00x\x00\x00y\n\x00\n", "  (x)  ((y", "x \r y \r\n z", "\r", "\r\r", " \r ", "\n \r", "a\r\n\r\nb",
    "1 \n2  3\n 4", "e\u0301\n", "\u1680x\u2000\u200ay", "#\n#\r#", " #\n\n #",
]


def long_texts() -> list[str]:
    return [
        "a" * 3000, " " * 3000, " " * 3000 + "x", "\n" * 1500, "1" * 1000, "ab" * 1500, "é" * 1000, "😀" * 700,
        "=" * 2500, "-=" * 1000, "the " * 800, "word" * 900, "\t \n" * 700, "日本" * 600, "e" + "\u0301" * 1500,
        "aAbB1! " * 400, "'s" * 1200, "x" * 255 + "y" + "x" * 256, "in" + "ing" * 700,
        "abcdefghijklmnopqrstuvwxyz" * 100,
    ]


def random_texts(count: int) -> list[str]:
    pick = random.Random(20240229)
    # Characters that are as old as Unicode 3.2: their classes are the same in every library of today.
    old = [chr(c) for c in range(0x110000) if unicodedata.ucd_3_2_0.category(chr(c)) not in ("Cn", "Cs", "Co")
           and unicodedata.ucd_3_2_0.category(chr(c))[0] == unicodedata.category(chr(c))[0]]
    ascii_pool = [chr(c) for c in range(32, 127)]
    words = "the of and to in is it that was for on are with as his they be at one have this from".split()
    pools = [
        ascii_pool, list(WHITE_SPACE), list("  \n\t"), list(LOOKS_LIKE_SPACE), list("0123456789"), list("'stremlvd "),
        [chr(c) for c in range(0xC0, 0x250)], [chr(c) for c in range(0x300, 0x370)],
        [chr(c) for c in range(0x4E00, 0x4F00)], old, words, [" " + w for w in words],
        [w.upper() for w in words],
    ]
    texts = []
    for _ in range(count):
        chosen = pick.sample(pools, pick.randint(1, 4))
        texts.append("".join(pick.choice(pick.choice(chosen)) for _ in range(pick.randint(1, 60))))
    return texts


DIGITS_THEN_BYTES = [
    pre_tokenizers.Digits(individual_digits=True),
    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
]


def split_then_bytes(digits: str) -> list[pre_tokenizers.PreTokenizer]:
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|" + digits
        + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    return [
        pre_tokenizers.Split(Regex(pattern), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]


# As the tokenizer.json of the models that gave the rows their names have it: the steps, and ignore_merges.
ROWS = {
    "gpt-2": ([pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)], False),
    "qwen2": (split_then_bytes(r"\p{N}"), False),
    "llama-bpe": (split_then_bytes(r"\p{N}{1,3}"), True),
}


def make_tokenizer(
    tokens: list[str], merges: list[str], steps: list[pre_tokenizers.PreTokenizer], ignore_merges: bool = False
) -> Tokenizer:
    vocabulary = {token: index for index, token in enumerate(tokens)}
    pairs = [tuple(merge.split(" ")) for merge in merges]
    tokenizer = Tokenizer(models.BPE(vocabulary, pairs, ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    return tokenizer


def read_vocabulary(kind: str, path: Path) -> tuple[list[str], list[str]]:
    if kind != "gguf":
        names = ("tokens.txt", "merges.txt")
        return tuple((path / name).read_text(encoding="utf-8").rstrip("\n").split("\n") for name in names)
    from gguf import GGUFReader

    fields = GGUFReader(str(path)).fields
    return tuple(fields["tokenizer.ggml." + name].contents() for name in ("tokens", "merges"))


def print_line(text: str, tokenizers: dict[str, Tokenizer]) -> None:
    ids = {name: tokenizer.encode(text, add_special_tokens=False).ids for name, tokenizer in tokenizers.items()}
    print(json.dumps({"text": text} | ids, separators=(",", ":")))


def main() -> None:
    kind, path = sys.argv[1], Path(sys.argv[2])
    vocabulary = read_vocabulary(kind, path)
    if kind == "rows":
        tokenizers = {name: make_tokenizer(*vocabulary, *row) for name, row in ROWS.items()}
        texts = FIXED + ROWS_FIXED + random_texts(300)
    else:
        tokenizers = {"ids": make_tokenizer(*vocabulary, DIGITS_THEN_BYTES)}
        texts = FIXED + long_texts() + random_texts(300)
    for text in texts:
        print_line(text, tokenizers)


if __name__ == "__main__":
    main()
