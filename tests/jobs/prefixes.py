#!/usr/bin/env python3
"""Requests whose prompts begin alike: the common part is computed once, and that is seen in the counts only."""
import random
import re
import signal
import time

from support import (Workspace, main, parameters_of, read_json_lines, record_id, say, send, shape_request,
                     text_of)

BLOCK = 64
FAMILIES = 3
REQUESTS = 36
LONGEST_ANSWER = 60
KILLS = 6


def prefixed_requests():
    """In each family some share a long instruction and some its first part only; every sixth request shares nothing."""
    generator = random.Random(5)
    instructions = [text_of(generator, 150) for _ in range(FAMILIES)]
    lines = []
    for number in range(REQUESTS):
        instruction = instructions[number % FAMILIES]
        if number % 4 == 1:
            instruction = " ".join(instruction.split()[:70])
        if number % 6 == 5:
            instruction = text_of(generator, 100)
        prompt = f"{instruction} {number} {text_of(generator, generator.randint(1, 40))}"
        lines.append(shape_request(number, prompt, parameters_of(generator, number, LONGEST_ANSWER)))
    return lines


def sequences_of(request):
    """Answers that are computed one by one: n, unless they are all the same."""
    parameters = request.get("body", request)
    return parameters.get("n", 1) if parameters.get("temperature", 0) > 0 else 1


def prompt_tokens_of(record):
    return record["prompt_tokens"] if "prompt_tokens" in record else record["response"]["body"]["usage"]["prompt_tokens"]


class Prefixes(Workspace):
    model_options = ("--layers", "2", "--width", "64")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.requests = prefixed_requests()
        cls.source = cls.write_lines("prefixed.jsonl", cls.requests)

    def setUp(self):
        if hasattr(type(self), "alone"):
            return
        out = []
        for number, request in enumerate(self.requests):
            name = f"alone-{number}"
            source = self.write_lines(f"{name}.jsonl", [request])
            self.nightjar(*self.job(name, source, "--quiet", "--threads", 1))
            # Alone, a request shares with itself only: the prompt of its n answers.
            blocks = (prompt_tokens_of(self.records(name)[0]) - 1) // BLOCK
            self.assertEqual(self.runs(name)[-1]["shared_tokens"], (sequences_of(request) - 1) * blocks * BLOCK)
            out.append(self.export(name))
        type(self).alone = b"".join(out)

    def prompt_tokens(self, name):
        """Of all answers, whoever computed them."""
        sequences = {record_id(request): sequences_of(request) for request in self.requests}
        return sum(sequences[record_id(record)] * prompt_tokens_of(record) for record in self.records(name))

    def check(self, name, *options):
        """Runs the job; returns what runs.jsonl says of it and what was printed."""
        finished = self.nightjar(*self.job(name, self.source, *options))
        self.assert_same_export(self.export(name), self.alone, name)
        run = self.runs(name)[-1]
        self.assertEqual(run["prefill_tokens"] + run["shared_tokens"], self.prompt_tokens(name))
        say(f"{name}: {run['shared_tokens']} shared, {run['prefill_tokens']} computed, "
            f"{run['recomputed_tokens']} computed again, {run['preemptions']} preemptions")
        return run, finished.stderr

    def test_computed_once_and_reported(self):
        run, said = self.check("together", "--threads", 2)
        match = re.search(r"^shared +(\d+) of (\d+) prompt tokens came from prefixes computed once$", said, re.M)
        self.assertIsNotNone(match, said)
        self.assertEqual(int(match.group(1)), run["shared_tokens"])
        self.assertEqual(int(match.group(2)), self.prompt_tokens("together"))
        self.assertGreater(run["shared_tokens"], self.prompt_tokens("together") // 3)

    def test_nothing_is_said_where_nothing_is_shared(self):
        source = self.write_lines("one.jsonl", self.requests[:1])
        finished = self.nightjar(*self.job("one", source))
        self.assertNotIn("shared", finished.stderr)

    def test_order_and_memory_do_not_matter(self):
        plenty, _ = self.check("plenty", "--threads", 1, "--token-budget", 33)
        refused = self.nightjar(*self.job("refused", self.source, "--kv-memory", "1"), code=78)
        least = re.search(r"--kv-memory ([0-9]+)KiB", refused.stderr).group(1)
        for factor in (1, 2):
            with self.subTest(factor=factor):
                run, _ = self.check(f"tight-{factor}", "--threads", 2, "--kv-memory", f"{int(least) * factor}KiB")
                # Groups are together, so that even the least memory computes most of what is common once.
                self.assertGreater(run["shared_tokens"], plenty["shared_tokens"] * 3 // 4)

    def test_killed_and_continued(self):
        generator = random.Random(8)
        for number in range(KILLS):
            process = self.start(*self.job("killed", self.source, "--quiet", "--threads", 1, "--token-budget", 16)) \
                if number % 2 == 0 else self.start("resume", self.path("killed"), "--quiet")
            self.wait_for_records(process, "killed", (number + 1) * REQUESTS // (KILLS + 2))
            time.sleep(generator.uniform(0, 0.02))
            self.assertIsNone(process.poll(), "the job was over too soon")
            send(process, signal.SIGKILL if number % 3 == 0 else signal.SIGTERM, 30)
        self.nightjar("resume", self.path("killed"), "--quiet")
        self.assert_same_export(self.export("killed"), self.alone, "killed")
        self.assertGreater(self.runs("killed")[0]["shared_tokens"], 0)
        self.assertEqual(len(read_json_lines(self.path("killed", "results.jsonl"))), REQUESTS)


if __name__ == "__main__":
    main()
