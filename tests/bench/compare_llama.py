#!/usr/bin/env python3
"""Tokens per second of nightjar beside llama.cpp's on this machine, the same model file and number of threads.

usage: compare_llama.py LLAMA_BUILD MODEL [--nightjar PATH] [--threads N] [--rounds N] [--seconds N]

LLAMA_BUILD is a build folder of llama.cpp that has bin/llama-bench and bin/llama-batched-bench. The programs run in
turns, so that what else the machine does meets both; each number is the median of the rounds (least and most beside
it). llama.cpp gets its best micro-batch for the prompt."""
import json
import os

from programs import parse_options, print_comparison, print_header, run

PROMPT_TOKENS, CONTEXT, NEW_TOKENS = 512, 200, 32
MICRO_BATCHES = (128, 512)
SEQUENCES = (1, 8, 32, 64)


def measure_nightjar(options):
    report = json.loads(run([options.nightjar, "bench-model", "-m", options.model, "--json", "--quiet",
                             "--threads", str(options.threads), "--seconds", str(options.seconds),
                             "--prompt-tokens", str(PROMPT_TOKENS), "--context", str(CONTEXT)]))
    rates = {}
    for row in report["rows"]:
        if row["fits"] and (row["kind"] == "decode" or row["sequences"] == 1):
            rates[row["kind"], row["sequences"]] = row["tokens_per_second"]
    return rates


def measure_llama_prompt(options):
    rows = json.loads(run([os.path.join(options.build, "bin", "llama-bench"), "-m", options.model, "-o", "json",
                           "-t", str(options.threads), "-p", str(PROMPT_TOKENS), "-n", "0", "-r", "1",
                           "-ub", ",".join(map(str, MICRO_BATCHES))]))
    best = max(rows, key=lambda row: row["avg_ts"])
    return "%s (%s)" % (best["build_number"], best["build_commit"]), best["avg_ts"]


def measure_llama_decode(options):
    """All sequences begin with one prompt (-pps), which is read once instead of 105 times: that saves minutes. If it
    makes a difference to decoding, then in llama.cpp's favour, whose keys and values are then shared."""
    context = max(SEQUENCES) * (CONTEXT + NEW_TOKENS)
    out = run([os.path.join(options.build, "bin", "llama-batched-bench"), "-m", options.model, "-c", str(context),
               "-t", str(options.threads), "-npp", str(CONTEXT), "-ntg", str(NEW_TOKENS),
               "-npl", ",".join(map(str, SEQUENCES)), "-pps", "--output-format", "jsonl"])
    rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    return {("decode", row["pl"]): row["speed_tg"] for row in rows}


def add_options(parser):
    parser.add_argument("--seconds", type=int, default=5, help="of nightjar's every measurement")


def main():
    options = parse_options(__doc__, add_options)
    ours, theirs, version = {}, {}, None
    for _ in range(options.rounds):
        for key, rate in measure_nightjar(options).items():
            ours.setdefault(key, []).append(rate)
        version, rate = measure_llama_prompt(options)
        theirs.setdefault(("prefill", 1), []).append(rate)
        for key, rate in measure_llama_decode(options).items():
            theirs.setdefault(key, []).append(rate)
    print_header(options, version)
    print("%-8s %9s  %-28s %-28s %s" % ("", "sequences", "nightjar, tokens/s", "llama.cpp, tokens/s", "ratio"))
    for key in sorted(set(ours) & set(theirs), key=lambda key: (key[0] != "prefill", key[1])):
        print_comparison("%-8s %9d" % key, ours[key], theirs[key])


if __name__ == "__main__":
    main()
