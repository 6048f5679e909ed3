#!/usr/bin/env python3
"""bench-model: what it counts is what was computed, and its rows are those that were asked for."""
import json
import re
import signal

from support import Workspace, main, say, send

LAYERS, WIDTH, HEADS, KV_HEADS, FEED_FORWARD = 2, 64, 4, 2, 128
CONTEXT = 400


class BenchModel(Workspace):
    model_options = ("--layers", LAYERS, "--width", WIDTH, "--heads", HEADS, "--kv-heads", KV_HEADS,
                     "--feed-forward", FEED_FORWARD, "--context", CONTEXT, "--tied")
    model_options = tuple(map(str, model_options))

    def bench(self, *options):
        out = self.nightjar("bench-model", "-m", self.model, "--json", "--seconds", 1, *options).stdout
        return json.loads(out)

    def operations(self, tokens, logit_rows, vocabulary):
        kv_width = WIDTH // HEADS * KV_HEADS
        layer = WIDTH * (2 * WIDTH + 2 * kv_width + 3 * FEED_FORWARD)
        return 2 * (tokens * LAYERS * layer + logit_rows * WIDTH * vocabulary)

    def test_numbers_are_true(self):
        report = self.bench("--prompt-tokens", 96, "--context", 70, "--threads", 2, "--kv-type", "q8")
        vocabulary = json.loads(self.nightjar("doctor", "-m", self.model, "--json").stdout)["shape"]["vocabulary"]
        self.assertEqual((report["threads"], report["token_budget"], report["model"]), (2, 256, self.model))
        self.assertEqual(report["kv_type"], "q8")
        self.assertGreater(report["peak_tops"], 0)
        rows = [(row["kind"], row["sequences"], row.get("prompt_tokens", row.get("context"))) for row in report["rows"]]
        self.assertEqual(rows, [("prefill", 1, 96), ("prefill", 8, 12), ("decode", 1, 70), ("decode", 8, 70),
                                ("decode", 32, 70), ("decode", 64, 70)])
        for row in report["rows"]:
            with self.subTest(kind=row["kind"], sequences=row["sequences"]):
                self.check_row(row, vocabulary, report["peak_tops"])

    def check_row(self, row, vocabulary, peak):
        is_decode = row["kind"] == "decode"
        each = row["sequences"] * (1 if is_decode else row["prompt_tokens"])
        self.assertEqual(row["computed_tokens"], row["repeats"] * each)
        self.assertAlmostEqual(row["tokens_per_second"], row["computed_tokens"] / row["seconds"], delta=1e-3)
        logit_rows = row["repeats"] * row["sequences"]
        matmul = row["operation_seconds"]["matmul"]
        self.assertAlmostEqual(row["matmul_tops"] * 1e12 * matmul /
                               self.operations(row["computed_tokens"], logit_rows, vocabulary), 1, delta=1e-6)
        self.assertAlmostEqual(row["share_of_peak"], row["matmul_tops"] / peak, delta=1e-6)
        timed = sum(row["operation_seconds"].values())
        self.assertTrue(0 < timed <= row["seconds"], (timed, row["seconds"]))
        self.assertGreater(row["operation_seconds"]["attention"], 0)
        if not is_decode:
            self.assertGreaterEqual(row["seconds"], 1)

    def test_text(self):
        result = self.nightjar("bench-model", "-m", self.model, "--seconds", 1, "--token-budget", 16, "--quiet")
        text = result.stdout.decode()
        say(text)
        self.assertRegex(text, r"peak +\d+\.\d+ TOPS")
        self.assertEqual(re.findall(r"^(prefill|decode) +(\d+)", text, re.M),
                         [("prefill", "1"), ("prefill", "8"), ("decode", "1"), ("decode", "8")],
                         "as many sequences as a sweep has rows")
        self.assertEqual(result.stderr, "")

    def test_refusals(self):
        for words, pattern in ((["-m", self.model, "--prompt-tokens", 401], "--prompt-tokens"),
                               (["-m", self.model, "--prompt-tokens", 64, "--context", 399], "--context"),
                               ([], "-m FILE"), (["-m", self.model, "more"], "more")):
            with self.subTest(words):
                self.assertRegex(self.nightjar("bench-model", *words, code=64).stderr, pattern)
        self.nightjar("bench-model", "-m", self.path("none.gguf"), code=66)

    def test_stop(self):
        process = self.start("bench-model", "-m", self.model, "--seconds", 600, "--prompt-tokens", 64)
        self.assertTrue(process.stdout.readline())
        send(process, signal.SIGTERM, 10)
        self.assertEqual(process.returncode, 75)


if __name__ == "__main__":
    main()
