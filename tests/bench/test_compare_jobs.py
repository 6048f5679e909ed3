#!/usr/bin/env python3
"""compare_jobs.py on programs that behave as the real ones do: the same prompts go to both, the fastest setting of the
server is taken, and rates are counted from records and answers."""
import json
import os
import sys
import unittest

from compare_jobs import LEAST_TOKENS, MOST_TOKENS, Job, make_prompts
from fake_programs import FakePrograms

# Notes its input; every word of a prompt is a token, and every answer has 5.
NIGHTJAR = """
import json, os, sys
output, source = sys.argv[sys.argv.index("-o") + 1], sys.argv[-1]
assert not os.path.exists(sys.argv[sys.argv.index("--cache-dir") + 1])
os.mkdir(output)
with open(source) as lines, open(output + "/results.jsonl", "w") as out, open(%r, "a") as log:
    for line in lines:
        log.write(line)
        json.dump({"prompt_tokens": len(json.loads(line)["prompt"].split()), "completion_tokens": 5}, out)
        out.write("\\n")
"""

# Notes its requests with the number of slots; with 8 slots an answer takes longer than all do with 4.
LLAMA_SERVER = """
import http.server, json, sys, time
slots = sys.argv[sys.argv.index("-np") + 1]
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, status, body):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())
    def do_GET(self):
        self.answer(200, {"build_info": "b7-abc"})
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with open(%r, "a") as log:
            log.write(json.dumps([slots, request]) + "\\n")
        time.sleep(1 if slots == "8" else 0)
        self.answer(%d, {"tokens_evaluated": len(request["prompt"].split()), "tokens_predicted": 6})
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


class Prompts(unittest.TestCase):
    def test_lengths(self):
        prompts = make_prompts(256)
        lengths = sorted(len(prompt.split()) for prompt in prompts)
        self.assertEqual(prompts, make_prompts(256))
        self.assertTrue(LEAST_TOKENS <= lengths[0] < 64 and 512 < lengths[-1] <= MOST_TOKENS, lengths)
        self.assertTrue(140 < lengths[128] < 230, lengths[128])  # the geometric mean of the limits is 181

    def test_fewer_requests_are_the_first_ones(self):
        self.assertEqual(make_prompts(3), make_prompts(9)[:3])


class Rates(unittest.TestCase):
    def test_rates(self):
        self.assertEqual(Job(4.0, [(10, 2), (20, 6)]).rates(),
                         {"requests/hour": 1800.0, "new tokens/s": 2.0, "all tokens/s": 9.5})


class CompareJobs(FakePrograms):
    def setUp(self):
        super().setUp()
        self.ours, self.theirs = os.path.join(self.folder, "ours"), os.path.join(self.folder, "theirs")

    def compare_jobs(self, *options, status=200):
        nightjar = self.program("nightjar", NIGHTJAR % self.ours, sys.executable)
        self.program("bin/llama-server", LLAMA_SERVER % (self.theirs, status), sys.executable)
        return self.compare("compare_jobs.py", nightjar, 1, "--requests", "3", "--settings", "8:512,4:128", "--tune",
                            "1", *options)

    def read_lines(self, path):
        with open(path, encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def test_both_get_the_same_prompts(self):
        result = self.compare_jobs("--ban-tokens", "0,2", "--new-tokens", "6")
        self.assertEqual(result.returncode, 0, result.stderr)
        prompts = make_prompts(3)
        ours, theirs = self.read_lines(self.ours), self.read_lines(self.theirs)
        self.assertEqual(ours, [{"prompt": prompt, "max_tokens": 6, "logit_bias": {"0": -100, "2": -100}}
                                for prompt in prompts])
        self.assertEqual([slots for slots, _ in theirs], ["8", "4", "4", "4", "4"])
        self.assertEqual(sorted(request["prompt"] for _, request in theirs[2:]), sorted(prompts))
        for _, request in theirs:
            self.assertEqual((request["n_predict"], request["temperature"], request["logit_bias"]),
                             (6, 0, [[0, False], [2, False]]))

    def test_what_is_printed(self):
        result = self.compare_jobs()
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = result.stdout.splitlines()
        self.assertRegex(lines[0], r"on the first 1 requests, .*: 8:512 \d+\.\d, 4:128 \d+\.\d; best 4:128$")
        self.assertIn("m.gguf, 2 threads, medians of 1 rounds; llama.cpp build b7-abc; load ", lines[1])
        tokens = sum(len(prompt.split()) for prompt in make_prompts(3))
        self.assertRegex(lines[2], r"^nightjar +3 requests, %d prompt tokens, 15 new tokens; \d+\.\d s$" % tokens)
        self.assertRegex(lines[3], r"^llama\.cpp +3 requests, %d prompt tokens, 18 new tokens; \d+\.\d s$" % tokens)
        self.assertEqual([line[:14].strip() for line in lines[5:]], ["requests/hour", "new tokens/s", "all tokens/s"])
        for line in lines[5:]:
            self.assertRegex(line[14:], r"^ +\d+\.\d \(\d+\.\d to \d+\.\d\) +\d+\.\d \(\d+\.\d to \d+\.\d\) +\d+\.\d\d$")

    def test_a_server_that_refuses_is_named(self):
        result = self.compare_jobs(status=400)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("bin/llama-server: a request ended with status 400", result.stderr)

    def test_a_server_that_ends_is_named(self):
        self.program("bin/llama-server", "echo no such model; exit 3")
        result = self.compare("compare_jobs.py", "nightjar", 1, "--requests", "1")
        self.assertIn("bin/llama-server: ended with 3:\nno such model", result.stderr)

    def test_a_build_without_server(self):
        result = self.compare("compare_jobs.py", "nightjar", 1, "--requests", "1")
        self.assertIn("build llama.cpp's target llama-server", result.stderr)


if __name__ == "__main__":
    unittest.main()
