#!/usr/bin/env python3
"""A million short requests: how fast they are indexed, how much memory that takes, and how long a job of which
900,000 are finished needs to go on.

Seconds are compared with those of another program on the same data in the same run, since the machine may be busy;
the limits in seconds hold where it is not."""
import json
import os
import random
import struct
import subprocess
import time
import zlib

from support import WORDS, Workspace, main, say

PROBE = os.environ["NJ_INPUT_PROBE"]
REQUESTS, FINISHED, BATCH_LINES, PEER_LINES = 1_000_000, 900_000, 100_000, 100_000
MOST_GROWTH_BYTES = 64_000_000
LEAST_RATE, MOST_RESUME_SECONDS = 50_000, 10  # on a core that does nothing else
LEAST_PLAIN_TO_PEER, LEAST_BATCH_TO_PEER = 0.2, 0.1  # json.loads of the same lines
MOST_RESUME_TO_INDEX = 0.5
SETTLED_SECONDS = 2.1
HEADER_BYTES = 64


def is_idle():
    return os.getloadavg()[0] < 0.75 * len(os.sched_getaffinity(0))


def peer_rate(path):
    """Lines per second of CPU time that Python's JSON parser, which is written in C, gets through."""
    with open(path, "rb") as file:
        lines = [line for line, _ in zip(file, range(PEER_LINES))]
    began = time.process_time()
    for line in lines:
        json.loads(line)
    return len(lines) / (time.process_time() - began)


class ManyRequests(Workspace):
    def prompts(self, count):
        generator = random.Random(6)
        for number in range(count):
            yield number, " ".join(generator.choices(WORDS, k=12))

    def write_plain(self, name, count):
        with open(self.path(name), "w", encoding="ascii") as file:
            for number, prompt in self.prompts(count):
                file.write(f'{{"id": "request-{number}", "prompt": "{prompt} {number}?", "max_tokens": 8}}\n')
        return self.path(name)

    def write_batch(self, name, count):
        with open(self.path(name), "w", encoding="ascii") as file:
            for number, prompt in self.prompts(count):
                file.write(f'{{"custom_id": "request-{number}", "method": "POST", "url": "/v1/chat/completions", '
                           f'"body": {{"messages": [{{"role": "user", "content": "{prompt} {number}?"}}], '
                           f'"max_tokens": 8}}}}\n')
        return self.path(name)

    def probe(self, source, output):
        """Reads the input up to where the weights would be loaded: what that has cost, and what was said."""
        result = subprocess.run([PROBE, self.model, self.path("cache"), self.path(output), source], check=True,
                                capture_output=True, env=self.environment, timeout=600)
        return json.loads(result.stdout), result.stderr.decode()

    def plan(self, source):
        """What `plan` says, and the most memory it was seen to hold, in bytes."""
        process, most = self.start("plan", "-m", self.model, "--json", "--quiet", source), 0
        while process.poll() is None:
            try:
                with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
                    most = max([most] + [1024 * int(line.split()[1]) for line in status if line.startswith("VmHWM")])
            except ProcessLookupError:
                pass
            time.sleep(0.002)
        self.assertEqual(process.returncode, 0)
        return json.loads(process.stdout.read()), most

    def check_rate(self, label, source, cost, count, least):
        rate = count / (cost["read"]["cpu_seconds"] - cost["open"]["cpu_seconds"])
        peer, idle = peer_rate(source), is_idle()
        say(f"{label}: {rate:,.0f} requests per second of CPU time, {rate / peer:.2f} times json.loads"
            + ("" if idle else "; the machine is busy"))
        self.assertGreater(rate, least * peer)
        return rate, idle

    def check_growth(self, label, cost, least):
        growth = 1024 * (cost["read"]["most_kib"] - least["read"]["most_kib"])
        say(f"{label}: {growth / 1e6:.1f} MB more than with one request")
        self.assertLess(growth, MOST_GROWTH_BYTES)

    def write_results(self, output):
        """Answers to the first requests, as if they had been computed."""
        with open(self.path(output, "index.bin"), "rb") as index, \
             open(self.path(output, "results.jsonl"), "wb") as results:
            row_bytes = struct.unpack_from("<I", index.read(HEADER_BYTES), 12)[0]
            for number in range(FINISHED):
                low, high = struct.unpack_from("<QQ", index.read(row_bytes), 16)
                line = (f'{{"id":"request-{number}","text":"the stone is small and open, they carried it slowly home",'
                        f'"finish_reason":"stop","prompt_tokens":30,"completion_tokens":8,"schema":1,"attempt":1,'
                        f'"digest":"{high:016x}{low:016x}"').encode()
                results.write(line + f',"crc32":"{zlib.crc32(line):08x}"}}\n'.encode())

    def test_a_million_requests(self):
        one, _ = self.probe(self.write_plain("one.jsonl", 1), "out-one")
        source = self.write_plain("million.jsonl", REQUESTS)
        time.sleep(SETTLED_SECONDS)
        index, said = self.probe(source, "out")
        self.assertEqual(index["requests"], REQUESTS)
        rate, idle = self.check_rate("plain lines", source, index, REQUESTS, LEAST_PLAIN_TO_PEER)
        if idle:
            self.assertGreater(rate, LEAST_RATE)
        self.check_growth("indexing", index, one)

        self.write_results("out")
        resume, said = self.probe(source, "out")
        self.assertEqual(resume["answered"], FINISHED)
        self.assertIn("the index of the last run is used", said)
        say(f"resume with {FINISHED:,} of {REQUESTS:,} finished: {resume['read']['seconds']:.1f} s from the start, "
            f"{resume['read']['cpu_seconds']:.1f} s of CPU time (indexing: {index['read']['cpu_seconds']:.1f} s)")
        self.assertLess(resume["read"]["cpu_seconds"], MOST_RESUME_TO_INDEX * index["read"]["cpu_seconds"])
        if is_idle():
            self.assertLess(resume["read"]["seconds"], MOST_RESUME_SECONDS)
        self.check_growth("resuming", resume, one)

    def test_plan_of_a_million_requests(self):
        _, least = self.plan(self.write_plain("one.jsonl", 1))
        plan, most = self.plan(self.write_plain("million.jsonl", REQUESTS))
        self.assertEqual(plan["requests"], REQUESTS)
        say(f"plan: {(most - least) / 1e6:.1f} MB more than with one request ({least / 1e6:.1f} MB)")
        self.assertGreater(most, least)
        self.assertLess(most - least, MOST_GROWTH_BYTES)

    def test_batch_lines(self):
        source = self.write_batch("batch.jsonl", BATCH_LINES)
        cost, _ = self.probe(source, "out-batch")
        self.assertEqual(cost["requests"], BATCH_LINES)
        self.check_rate("batch lines through a chat template", source, cost, BATCH_LINES, LEAST_BATCH_TO_PEER)


if __name__ == "__main__":
    main()
