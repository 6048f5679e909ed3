#!/usr/bin/env python3
"""The answer to a request depends on the model, the request and its parameters, and on nothing else."""
import json
import time
import unittest

from support import Workspace, has_instructions, least_memory_in, main, mixed_requests, record_id, say, sorted_by_id

REQUESTS = 200


class SameBytes(Workspace):
    model_options = ("--layers", "2", "--width", "64")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.requests = mixed_requests(REQUESTS, longest_words=960, longest_answer=400, seed=7)
        cls.source = cls.write_lines("mixed.jsonl", cls.requests)
        cls.kernels = ["reference"] + [name for name in ("avx2", "avx-vnni", "avx512-vnni")
                                       if has_instructions(name.replace("-", "_"))]

    def setUp(self):
        if not hasattr(type(self), "baseline"):
            type(self).baseline = self.run_job("baseline", "--threads", 2, "--token-budget", 512,
                                               "--kernels", self.kernels[-1])

    def run_job(self, name, *options, source=None):
        began = time.monotonic()
        self.nightjar(*self.job(name, source or self.source, "--quiet", *options))
        out = self.export(name)
        run = self.runs(name)[-1]
        say(f"{name}: {time.monotonic() - began:.1f} s, {run['sweeps']} sweeps, {run['mixed_sweeps']} mixed, "
            f"{run['preemptions']} preemptions, {run['prefill_tokens']} prefill, {run['decode_tokens']} decode")
        return out

    def check(self, name, *options):
        self.assert_same_export(self.run_job(name, *options), self.baseline, name)

    def test_input_is_as_varied_as_it_claims(self):
        records = self.records("baseline")
        self.assertEqual(len(records), REQUESTS)
        counts = [record.get("prompt_tokens") or record["response"]["body"]["usage"]["prompt_tokens"]
                  for record in records]
        answers = [record["text"] for record in records if "text" in record]
        say(f"prompts of {min(counts)} to {max(counts)} tokens, {len(set(answers))} different answers")
        self.assertEqual(min(counts), 1)
        self.assertGreater(max(counts), 1500)
        self.assertLessEqual(max(counts), 2000)
        self.assertGreater(len(set(answers)), len(answers) // 2)
        finishes = {record["finish_reason"] for record in records if "text" in record}
        self.assertEqual(finishes, {"stop", "length"})

    def test_export_is_in_input_order(self):
        ids = [record_id(json.loads(line)) for line in self.baseline.splitlines()]
        self.assertEqual(ids, [record_id(request) for request in self.requests])

    def test_threads_budgets_and_kernels(self):
        combinations = [("reference", 1, 16), ("reference", 2, 512)]
        if "avx2" in self.kernels:
            combinations += [("avx2", threads, budget) for threads in (1, 2) for budget in (16, 512)]
        combinations += [(name, 2, 512) for name in self.kernels if "vnni" in name]
        for kernels, threads, budget in combinations:
            with self.subTest(kernels=kernels, threads=threads, budget=budget):
                self.check(f"{kernels}-{threads}-{budget}", "--threads", threads, "--token-budget", budget,
                           "--kernels", kernels)

    def test_smallest_memory(self):
        for budget, threads in ((16, 1), (512, 2)):
            with self.subTest(budget=budget):
                refused = self.nightjar(*self.job(f"refused-{budget}", self.source, "--token-budget", budget,
                                                  "--kv-memory", "1"), code=78)
                least = least_memory_in(refused.stderr)
                self.assertIsNotNone(least, f"no size named in: {refused.stderr}")
                name = f"smallest-{budget}"
                self.check(name, "--threads", threads, "--token-budget", budget, "--kv-memory", least)
                run = self.runs(name)[-1]
                say(f"smallest KV memory {least}")
                self.assertGreater(run["mixed_sweeps"], 0)
                if budget == 512:  # 16 sequences at most leave no block wanting
                    self.assertGreaterEqual(run["preemptions"], 20)
        self.check("plenty", "--threads", 1, "--kv-memory", "1GiB")

    def test_half_precision_keys_and_values(self):
        """Another KV type has answers of its own, which depend on nothing else either."""
        f16 = ("--kv-type", "f16")
        baseline = self.run_job("f16", "--threads", 2, "--token-budget", 512, "--kernels", self.kernels[-1], *f16)
        self.assertNotEqual(baseline, self.baseline)
        refused = self.nightjar(*self.job("f16-refused", self.source, "--kv-memory", "1", *f16), code=78)
        least = least_memory_in(refused.stderr)
        for name, options in (("f16-reference", ("--threads", 2, "--kernels", "reference")),
                              ("f16-smallest", ("--threads", 1, "--token-budget", 64, "--kv-memory", least))):
            with self.subTest(name):
                self.assert_same_export(self.run_job(name, *options, *f16), baseline, name)
        say(f"smallest KV memory {least}")

    def test_avx2_was_compared(self):
        if "avx2" not in self.kernels:
            raise unittest.SkipTest("this CPU has no AVX2; only the reference kernels were run")

    def test_reversed_input(self):
        source = self.write_lines("reversed.jsonl", self.requests[::-1])
        out = self.run_job("reversed", "--threads", 2, source=source)
        self.assertEqual(sorted_by_id(out), sorted_by_id(self.baseline))


if __name__ == "__main__":
    main()
