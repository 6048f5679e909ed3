#!/usr/bin/env python3
"""The same answers whatever the options, on the small real model (NJ_SMOLLM2: its GGUF file)."""
import os
import sys
import time

from support import SKIPPED, Workspace, has_instructions, least_memory_in, main, say, shape_request, sorted_by_id

TASKS = ["Name three rivers of Europe.", "What is the capital of Portugal?", "Write a haiku about rain.",
         "Explain in one sentence what a compiler does.", "Translate 'good morning' into French.",
         "List two uses of copper.", "Why is the sky blue?", "Give a synonym of 'quick'.",
         "What do bees make?", "Continue: one, two, three,"]


def real_requests(count, longest_answer):
    lines = []
    for number in range(count):
        parameters = {"max_tokens": 2 + number % longest_answer}
        if number % 3 == 1:
            parameters.update(temperature=0.8, seed=number, top_p=0.9)
        if number % 5 == 2:
            parameters["stop"] = ["."]
        prompt = TASKS[number % len(TASKS)]
        if number % 4 == 3:
            prompt = "The following question is from a quiz for children of ten years. " + prompt
        lines.append(shape_request(number, prompt, parameters))
        if number % 2 == 0:  # most requests of an instruction model are chats
            lines[-1] = {"id": f"request-{number:04d}", "messages": [{"role": "user", "content": prompt}], **parameters}
    return lines


class SameBytesOnTheModel(Workspace):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = os.path.realpath(os.environ["NJ_SMOLLM2"])
        cls.source = cls.write_lines("real.jsonl", real_requests(20, 12))

    def run_job(self, name, source, *options):
        began = time.monotonic()
        self.nightjar(*self.job(name, source, "--quiet", *options), timeout=600)
        run = self.runs(name)[-1]
        say(f"{name}: {time.monotonic() - began:.1f} s, {run['prefill_tokens']} prefill, "
            f"{run['decode_tokens']} decode, {run['preemptions']} preemptions")
        return self.export(name)

    def test_same_bytes(self):
        vector = "avx2" if has_instructions("avx2") else "reference"
        baseline = self.run_job("baseline", self.source, "--threads", 2, "--token-budget", 512, "--kernels", vector)
        for label, options in (("one-thread-budget-16", ("--threads", 1, "--token-budget", 16)),
                               ("little-memory", ("--threads", 2, "--kv-memory", self.least_memory()))):
            with self.subTest(label):
                self.assert_same_export(self.run_job(label, self.source, *options), baseline, label)
        with self.subTest("reversed"):
            with open(self.source, "rb") as file:
                lines = file.read().splitlines()
            out = self.run_job("reversed", self.write_lines("reversed.jsonl", lines[::-1]), "--threads", 2)
            self.assertEqual(sorted_by_id(out), sorted_by_id(baseline))
        with self.subTest("reference kernels"):
            out = self.run_job("reference", self.source, "--threads", 2, "--kernels", "reference")
            self.assert_same_export(out, baseline, "reference")

    def least_memory(self):
        refused = self.nightjar(*self.job("refused", self.source, "--kv-memory", "1"), code=78)
        return least_memory_in(refused.stderr)


if __name__ == "__main__":
    if not os.path.isfile(os.environ.get("NJ_SMOLLM2", "")):
        say("skipped: NJ_SMOLLM2 does not name the GGUF file of SmolLM2-135M-Instruct")
        sys.exit(SKIPPED)
    main()
