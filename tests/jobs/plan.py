#!/usr/bin/env python3
"""plan: what it says is what run then does, and nothing is written."""
import gzip
import io
import json
import os
import re
import statistics
import tarfile

from support import Workspace, least_memory_in, main, mixed_requests, record_id, say

BAD = (b"null", b'{"id": "typo", "prompt": "x", "temprature": 1}', b"{", b"[]", b"5", b'"text"', b'{"id": "more"}')
BLOCK_BYTES = 64 * 2 * 2 * (16 + 16 + 2 * 4)  # positions, layers, KV heads; bytes of keys and values of width 16, two scales

KINDS = ("weights", "kv", "activations", "program", "buffers")


def answers_to(request):
    """How many answers have to be computed."""
    return request.get("body", request).get("n", 1)


def prompt_tokens_of(record):
    return record["prompt_tokens"] if "prompt_tokens" in record else record["response"]["body"]["usage"]["prompt_tokens"]


class Plan(Workspace):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.requests = mixed_requests(80, longest_words=120, longest_answer=40, seed=31)
        cls.answers = sum(map(answers_to, cls.requests))
        cls.duplicate = dict(cls.requests[3])
        cls.lines = [*cls.requests[:40], *BAD, *cls.requests[40:], cls.duplicate]
        cls.source = cls.write_lines("mixed.jsonl", cls.lines)
        with open(cls.source, "rb") as file:
            cls.text = file.read()
        cls.bad = len(BAD) + 1

    def words(self, source, *options):
        return ["plan", "-m", self.model, "--threads", 2, *options, source]

    def plan(self, source, *options, code=0, **keywords):
        return json.loads(self.nightjar(*self.words(source, "--json", "--quiet", *options), code=code, **keywords).stdout)

    def test_equals_what_run_does(self):
        before = sorted(os.listdir(self.root))
        report = self.plan(self.source, "-o", self.path("out"), "--job-time", "0")
        self.assertEqual(sorted(set(os.listdir(self.root)) - {".cache"}), sorted(set(before) - {".cache"}))
        self.nightjar(*self.job("out", self.source, "--threads", 2), code=1)
        run = self.runs("out")[-1]
        self.assertEqual((report["lines"], report["requests"], report["bad"], report["planned_requests"]),
                         (len(self.lines), 80, self.bad, 80))
        self.assertEqual(len(self.records("out", "errors.jsonl")), report["bad"])
        memory = report["memory"]
        self.assertEqual((memory["kv_blocks"], memory["kv_bytes"]), (run["kv_blocks"], run["kv_bytes"]))
        self.assertEqual(memory["kv_block_bytes"], BLOCK_BYTES)
        self.assertEqual(memory["kv_bytes"], memory["kv_blocks"] * BLOCK_BYTES)
        self.check_lengths(report["lengths"])
        self.assertEqual((memory["token_budget"], memory["answers_in_flight"]), (256, self.answers))
        self.assertTrue(40 * 88 <= memory["index_bytes"] < 1 << 18)
        self.assertEqual(memory["sum_bytes"], sum(memory[f"{kind}_bytes"] for kind in KINDS))
        self.assertLessEqual(memory["sum_bytes"], memory["limit_bytes"])
        self.assertIsNone(memory["max_memory_bytes"])

    def check_lengths(self, lengths):
        prompts = sorted(prompt_tokens_of(record) for record in self.records("out"))
        limits = [request.get("max_tokens") or request["body"]["max_tokens"] for request in self.requests]
        wanted = [answers_to(request) for request in self.requests]
        by_id = {record_id(record): prompt_tokens_of(record) for record in self.records("out")}
        self.assertEqual(lengths["prompt_tokens"],
                         sum(n * by_id[record_id(request)] for n, request in zip(wanted, self.requests)))
        self.assertEqual((lengths["least_prompt"], lengths["most_prompt"]), (prompts[0], prompts[-1]))
        self.assertEqual(lengths["median_prompt"], statistics.median_low(prompts))
        self.assertEqual(lengths["ninety_percent_prompt"], prompts[79 * 9 // 10])
        self.assertEqual((lengths["most_new_tokens"], lengths["most_new_tokens_of_a_request"]),
                         (sum(n * limit for n, limit in zip(wanted, limits)), max(limits)))

    def test_time(self):
        time = self.plan(self.source)["time"]
        self.assertTrue(time["rough"])
        self.assertTrue(0 < time["least_seconds"] < time["most_seconds"] < 3600, time)
        self.assertGreater(time["prefill_tokens_per_second"], 0)
        self.assertGreater(time["decode_tokens_per_second"], 0)
        say(f"80 requests: {time['least_seconds']:.3f} to {time['most_seconds']:.3f} s")

    def test_first_bad_lines(self):
        report = self.plan(self.source)
        self.assertEqual([(bad["file"], bad["line"]) for bad in report["first_bad"]],
                         [("mixed.jsonl", 41 + i) for i in range(5)])
        self.assertIn("temprature", report["first_bad"][1]["message"])
        text = self.nightjar(*self.words(self.source)).stdout.decode()
        self.assertRegex(text, r"input +88 lines: 80 requests, 8 bad\n +mixed\.jsonl:41: .*null")
        self.assertRegex(text, r"\n +\.\.\. and 3 more\n")
        for pattern in (r"prompts +\d+ tokens: 1 the shortest", rf"sweeps +token budget 256, up to {self.answers} answers",
                        r"memory +\d.* of the .* that may be used; --max-memory cpu=\d+MiB would be the smallest",
                        r"weights .*, keys and values .*, activations .*, program .* \(index .*\), buffers ",
                        r"layers +all 2 in memory",
                        r"\d+ KV blocks \(q8\) of 64 tokens", "time +very roughly .* to "):
            with self.subTest(pattern):
                self.assertRegex(text, pattern)

    def test_options_of_run(self):
        report = self.plan(self.source, "--token-budget", 16, "--kv-memory", "300KiB", "--kernels", "reference",
                           "--first", 20)
        self.assertEqual((report["requests"], report["planned_requests"], report["kernels"]), (80, 20, "reference"))
        self.assertEqual((report["memory"]["token_budget"], report["memory"]["answers_in_flight"]), (16, 16))
        self.assertEqual(report["memory"]["kv_blocks"], (300 << 10) // BLOCK_BYTES)
        raw = self.plan(self.source)["lengths"]["prompt_tokens"]
        self.assertGreater(self.plan(self.source, "--as-chat")["lengths"]["prompt_tokens"], raw)

    def test_too_little_memory_as_run_says_it(self):
        options = ("--kv-memory", "1KiB", "--quiet")
        run = self.nightjar(*self.job("refused", self.source, *options), code=78)
        plan = self.nightjar(*self.words(self.source, *options), code=78)
        self.assertEqual(plan.stderr.splitlines()[-1], run.stderr.splitlines()[-1])
        self.assertIn(b"80 requests, 8 bad", plan.stdout)
        report = self.plan(self.source, "--kv-memory", "1KiB", code=78)
        self.assertFalse(report["fits"])
        self.assertIn(report["misfit"], run.stderr)
        self.assertIsNone(report["memory"])
        self.plan(self.source, "--kv-memory", least_memory_in(plan.stderr))

    def test_every_source(self):
        expected = self.plan(self.source)
        packed = self.path("mixed.jsonl.gz")
        with open(packed, "wb") as file:
            file.write(gzip.compress(self.text))
        archive = self.path("mixed.tar.gz")
        with tarfile.open(archive, "w:gz") as file:
            info = tarfile.TarInfo("mixed.jsonl")
            info.size = len(self.text)
            file.addfile(info, io.BytesIO(self.text))
        for source, keywords in ((packed, {}), (archive, {}), ("-", {"input": self.text})):
            with self.subTest(source):
                report = self.plan(source, **keywords)
                for name in ("lines", "requests", "bad", "lengths"):
                    self.assertEqual(report[name], expected[name], name)
                self.assertEqual([bad["line"] for bad in report["first_bad"]], [41, 42, 43, 44, 45])

    def test_duplicates_are_told(self):
        lines = [self.requests[0], self.duplicate, self.requests[0]]
        source = self.write_lines("twice.jsonl", lines)
        text = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        for words, keywords in (([source], {}), (["-"], {"input": text})):
            report = self.plan(*words, **keywords)
            self.assertEqual((report["requests"], report["bad"]), (2, 1))
            self.assertRegex(report["first_bad"][0]["message"], r'stands already at .*:1')

    def test_help_tells_which_options_of_run_are_missing(self):
        run, plan = (self.nightjar("help", command).stdout.decode() for command in ("run", "plan"))
        of_run, of_plan = (set(re.findall(r"^  .{4}--([a-z-]+)", text, re.M)) for text in (run, plan))
        self.assertGreater(len(of_plan), 10)
        missing = set(re.search(r"the arguments of run, except (.*?);", plan).group(1).split(" and "))
        self.assertEqual(missing, {f"--{name}" for name in of_run - of_plan})

    def test_refusals(self):
        only_bad = self.write_lines("only-bad.jsonl", BAD)
        self.assertRegex(self.nightjar(*self.words(only_bad), code=65).stderr, "every line of the input is bad")
        self.assertRegex(self.nightjar(*self.words(self.source, "--strict"), code=65).stderr, r"mixed\.jsonl:41")
        self.nightjar("plan", self.source, code=64)
        self.nightjar("plan", "-m", self.model, code=64)
        self.nightjar(*self.words(self.path("none.jsonl")), code=66)
        empty = self.write_lines("empty.jsonl", [])
        report = self.plan(empty)
        self.assertEqual((report["lines"], report["planned_requests"], report["time"]), (0, 0, None))
        self.assertIn(b"0 lines", self.nightjar(*self.words(empty)).stdout)


if __name__ == "__main__":
    main()
