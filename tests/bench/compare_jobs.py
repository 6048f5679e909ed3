#!/usr/bin/env python3
"""A whole job of `nightjar run` beside the same prompts through llama.cpp's server, on this machine, with the same
model file and number of threads.

usage: compare_jobs.py LLAMA_BUILD MODEL [--nightjar PATH] [--threads N] [--rounds N] [--requests N] [--new-tokens N]
                       [--ban-tokens ID,...] [--settings SLOTS:MICRO_BATCH,...] [--tune N]

LLAMA_BUILD is a build folder of llama.cpp that has bin/llama-server. Prompts have lengths drawn log-normally from 32 to
1,024 tokens, the same in every run; answers are greedy and end where the model ends them or at --new-tokens, or only
there if --ban-tokens names the model's end tokens. Either job is timed from the start of a program that has nothing
prepared to the last answer: nightjar reads the input, packs the model, answers and writes; the server loads the model
and is always offered as many requests as it has slots for. Its settings are the fastest of several on the first --tune
requests. Then the two run in turns."""
import http.client
import json
import math
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from programs import parse_options, print_comparison, print_header, run

LEAST_TOKENS, MOST_TOKENS = 32, 1024
# Each is one token, with a space before it, of the vocabularies that are usual now.
WORDS = ("river stone light the winter of and house small green under road bird night to stands open water between "
         "letter garden over window it was old song field then paper north they carried slowly home").split()


def draw_length(generator):
    """The limits lie two standard deviations from the mean of the logarithm."""
    low, high = math.log(LEAST_TOKENS), math.log(MOST_TOKENS)
    while True:
        length = round(generator.lognormvariate((low + high) / 2, (high - low) / 4))
        if LEAST_TOKENS <= length <= MOST_TOKENS:
            return length


def make_prompts(count):
    generator = random.Random(1)
    return [" ".join(generator.choices(WORDS, k=draw_length(generator))) for _ in range(count)]


class Job:
    """What a run took, and its tokens."""

    def __init__(self, seconds, answers):
        self.seconds = seconds
        self.requests = len(answers)
        self.prompt_tokens = sum(prompt for prompt, _ in answers)
        self.new_tokens = sum(new for _, new in answers)

    def rates(self):
        return {"requests/hour": self.requests / self.seconds * 3600, "new tokens/s": self.new_tokens / self.seconds,
                "all tokens/s": (self.prompt_tokens + self.new_tokens) / self.seconds}


def run_nightjar(options, prompts):
    with tempfile.TemporaryDirectory(prefix="compare-jobs-") as folder:
        source, output = os.path.join(folder, "prompts.jsonl"), os.path.join(folder, "job")
        with open(source, "w", encoding="utf-8") as file:
            for prompt in prompts:
                request = {"prompt": prompt, "max_tokens": options.new_tokens}
                if options.ban_tokens:
                    request["logit_bias"] = {str(token): -100 for token in options.ban_tokens}
                file.write(json.dumps(request) + "\n")
        start = time.monotonic()
        run([options.nightjar, "run", "-m", options.model, "-o", output, "--quiet", "--threads", str(options.threads),
             "--cache-dir", os.path.join(folder, "cache"), source])
        seconds = time.monotonic() - start
        with open(os.path.join(output, "results.jsonl"), encoding="utf-8") as file:
            records = [json.loads(line) for line in file]
    return Job(seconds, [(record["prompt_tokens"], record["completion_tokens"]) for record in records])


class Server:
    """llama.cpp's, with slots for prompts of any of our lengths."""

    def __init__(self, options, setting):
        self.path = os.path.join(options.build, "bin", "llama-server")
        slots, micro_batch = setting
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        # A few tokens more than words, for words that some vocabulary cuts.
        context = slots * (MOST_TOKENS + MOST_TOKENS // 8 + options.new_tokens)
        self.messages = tempfile.TemporaryFile()
        try:
            self.process = subprocess.Popen(
                [self.path, "-m", options.model, "-t", str(options.threads), "-np", str(slots), "-c", str(context),
                 "-b", "2048", "-ub", str(micro_batch), "--cache-ram", "0", "--no-webui", "--host", "127.0.0.1",
                 "--port", str(self.port)], stdout=self.messages, stderr=self.messages)
        except FileNotFoundError:
            sys.exit("%s is not there: build llama.cpp's target llama-server" % self.path)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.messages.close()

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def fail(self, what):
        self.messages.seek(0)
        sys.exit("%s: %s:\n%s" % (self.path, what, self.messages.read().decode("utf-8", "replace")[-2000:]))

    def wait_until_ready(self):
        while True:
            if self.process.poll() is not None:
                self.fail("ended with %d" % self.process.returncode)
            try:
                if self.ask("GET", "/health")[0] == 200:
                    return
            except OSError:
                pass  # it does not listen yet
            time.sleep(0.02)

    def version(self):
        return json.loads(self.ask("GET", "/props")[1])["build_info"]

    def complete(self, request):
        """Tokens of the prompt and of the answer."""
        status, body = self.ask("POST", "/completion", json.dumps(request))
        if status != 200:
            self.fail("a request ended with status %d, %s" % (status, body.decode("utf-8", "replace")[:200]))
        answer = json.loads(body)
        return answer["tokens_evaluated"], answer["tokens_predicted"]


def run_llama(options, setting, prompts):
    """The job and the version of the server."""
    requests = [{"prompt": prompt, "n_predict": options.new_tokens, "temperature": 0, "cache_prompt": False,
                 "logit_bias": [[token, False] for token in options.ban_tokens]} for prompt in prompts]
    start = time.monotonic()
    with Server(options, setting) as server, ThreadPoolExecutor(2 * setting[0]) as clients:
        server.wait_until_ready()
        answers = list(clients.map(server.complete, requests))
        seconds = time.monotonic() - start
        return Job(seconds, answers), server.version()


def choose_setting(options, prompts):
    """The setting that is fastest; says how fast all are."""
    rates = {setting: run_llama(options, setting, prompts)[0].rates()["all tokens/s"] for setting in options.settings}
    best = max(rates, key=rates.get)
    print("llama.cpp's settings on the first %d requests, slots:micro-batch, tokens/s: %s; best %d:%d" % (
        len(prompts), ", ".join("%d:%d %.1f" % (*setting, rate) for setting, rate in rates.items()), *best),
          flush=True)
    return best


def read_settings(text):
    return [tuple(int(number) for number in setting.split(":")) for setting in text.split(",")]


def read_tokens(text):
    return [int(token) for token in text.split(",")]


def add_options(parser):
    parser.add_argument("--requests", type=int, default=256)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--ban-tokens", type=read_tokens, default=[], metavar="ID,...", help="no answer has them")
    parser.add_argument("--settings", type=read_settings, default=read_settings("8:512,32:128,32:512,64:512"),
                        metavar="SLOTS:MICRO_BATCH,...", help="those that llama.cpp may choose from")
    parser.add_argument("--tune", type=int, help="requests that they are compared with (default: half)")


def print_tokens(name, jobs):
    print("%-9s %d requests, %d prompt tokens, %d new tokens; %.1f s" % (
        name, jobs[0].requests, jobs[0].prompt_tokens, jobs[0].new_tokens,
        statistics.median(job.seconds for job in jobs)))


def main():
    options = parse_options(__doc__, add_options)
    prompts = make_prompts(options.requests)
    setting = choose_setting(options, prompts[:options.tune or (options.requests + 1) // 2])
    ours, theirs, version = [], [], None
    for _ in range(options.rounds):
        ours.append(run_nightjar(options, prompts))
        job, version = run_llama(options, setting, prompts)
        theirs.append(job)
    print_header(options, version)
    print_tokens("nightjar", ours)
    print_tokens("llama.cpp", theirs)
    print("%-14s %-28s %-28s %s" % ("", "nightjar", "llama.cpp", "ratio"))
    for name in ours[0].rates():
        print_comparison("%-14s" % name, [job.rates()[name] for job in ours], [job.rates()[name] for job in theirs])


if __name__ == "__main__":
    main()
