"""What the end-to-end tests of the command line share.

The programs under test come from the environment (set by CMake): NJ_BINARY (nightjar), NJ_MAKE_MODEL (the
generator of synthetic models), NJ_VOCABULARY (its vocabulary folder), NJ_FAULTS (the preloaded fault library).
"""
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import unittest

BINARY = os.environ["NJ_BINARY"]
MAKE_MODEL = os.environ["NJ_MAKE_MODEL"]
VOCABULARY = os.environ["NJ_VOCABULARY"]
FAULTS = os.environ["NJ_FAULTS"]

SKIPPED = 77  # ctest's SKIP_RETURN_CODE
JOB_TIME = "2026-01-31T22:00:00Z"
JOB_TIME_SECONDS = 1769896800
WORDS = ("river stone light the a winter of and house small green under road bird night to stands open water between "
         "letter garden over window it was old song field then paper north they carried slowly home").split()


def say(text):
    """A line of the test's protocol: what was measured."""
    print(text, flush=True)


class Workspace(unittest.TestCase):
    """A test class with a temporary folder, a home of its own and a synthetic model."""

    model_options = ()

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="nightjar-test-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.root = os.path.realpath(cls.folder.name)
        cls.environment = {name: value for name, value in os.environ.items()
                           if name not in ("NO_COLOR", "COLUMNS", "SLURM_JOB_ID", "XDG_CACHE_HOME")}
        cls.environment["HOME"] = cls.root
        cls.model = cls.path("model.gguf")
        subprocess.run([MAKE_MODEL, "--vocabulary", VOCABULARY, *cls.model_options, cls.model], check=True)

    @classmethod
    def path(cls, *parts):
        return os.path.join(cls.root, *parts)

    @classmethod
    def write_lines(cls, name, lines):
        """A .jsonl file of these lines: bytes as they are, everything else as JSON. Returns its path."""
        path = cls.path(name)
        with open(path, "wb") as file:
            for line in lines:
                file.write(line if isinstance(line, bytes) else json.dumps(line).encode())
                file.write(b"\n")
        return path

    # Running nightjar

    def command(self, *words):
        return [BINARY, *map(str, words)]

    def start(self, *words, faults=None, **options):
        """Starts nightjar and returns the process, which is ended with the test."""
        environment = dict(self.environment, **options.pop("environment", {}))
        if faults is not None:
            environment.update(faults, LD_PRELOAD=FAULTS)
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        options.setdefault("stdin", subprocess.DEVNULL)
        process = subprocess.Popen(self.command(*words), env=environment, cwd=self.root, **options)
        self.addCleanup(finish, process)
        return process

    def nightjar(self, *words, code=0, timeout=240, input=None, **options):
        """Runs nightjar to its end and checks the exit code (one number or several; None: any)."""
        if input is not None:
            options["stdin"] = subprocess.PIPE
        process = self.start(*words, **options)
        out, err = process.communicate(input=input, timeout=timeout)
        finished = subprocess.CompletedProcess(words, process.returncode, out or b"", (err or b"").decode())
        accepted = (code,) if isinstance(code, int) else code
        if accepted is not None:
            self.assertIn(finished.returncode, accepted, f"nightjar {' '.join(map(str, words))}\n{finished.stderr}")
        return finished

    def job(self, name, source, *options):
        """The words of `run` for an input and an output directory in the workspace."""
        return ["run", "-m", self.model, "-o", self.path(name), "--job-time", JOB_TIME, *options, source]

    def export(self, name, code=0):
        return self.nightjar("export", self.path(name), code=code).stdout

    # Looking at a job's directory

    def records(self, name, file="results.jsonl"):
        return read_json_lines(self.path(name, file))

    def runs(self, name):
        return [line for line in self.records(name, "runs.jsonl") if is_stop(line)]

    def record_count(self, name):
        return sum(count_lines(self.path(name, file)) for file in ("results.jsonl", "errors.jsonl"))

    def wait_for_records(self, process, name, count, seconds=60):
        """Until the directory has so many records, the process has ended, or the time is up: True if it has them."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and process.poll() is None:
            if self.record_count(name) >= count:
                return True
            time.sleep(0.003)
        return self.record_count(name) >= count

    def wait_for_output(self, process, name, seconds=60):
        """Until the job has begun to compute."""
        self.assertTrue(self.wait_for_records(process, name, 1, seconds), "the job wrote no record in time")

    def assert_same_export(self, got, expected, label):
        if got == expected:
            return
        got_lines, expected_lines = got.splitlines(), expected.splitlines()
        for number, (a, b) in enumerate(zip(got_lines, expected_lines), 1):
            self.assertEqual(a, b, f"{label}: line {number} of the export differs")
        self.fail(f"{label}: {len(got_lines)} lines instead of {len(expected_lines)}")


def finish(process):
    if process.poll() is None:
        process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def read_json_lines(path):
    """Complete lines only; a file that is not there has none."""
    try:
        with open(path, "rb") as file:
            text = file.read()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text.split(b"\n")[:-1] if line]


def count_lines(path):
    try:
        with open(path, "rb") as file:
            return file.read().count(b"\n")
    except FileNotFoundError:
        return 0


def is_stop(line):
    return line.get("event") == "stop"


def record_id(record):
    return record["custom_id"] if "custom_id" in record else record["id"]


def sorted_by_id(export):
    """The lines of an export, ordered by id instead of by place in the input."""
    return sorted(export.splitlines(), key=lambda line: record_id(json.loads(line)))


def send(process, number, seconds):
    """Sends a signal; returns the seconds until the process had ended, at most so many are allowed."""
    began = time.monotonic()
    process.send_signal(number)
    process.communicate(timeout=seconds)
    return time.monotonic() - began


# Requests


def text_of(generator, words):
    return " ".join(generator.choice(WORDS) for _ in range(words))


def parameters_of(generator, number, longest):
    """Greedy, or sampled with a seed; some with stop strings."""
    parameters = {"max_tokens": generator.randint(1, longest)}
    if number % 3 == 1:
        parameters.update(temperature=0.9, seed=number, top_p=0.95)
    if number % 6 == 4:
        parameters.update(temperature=0.7, seed=7, top_k=20, min_p=0.02)
    if number % 5 == 2:
        parameters["stop"] = [" the", "st"]
    return parameters


def mixed_requests(count, longest_words, longest_answer, seed=1):
    """Requests of every shape: raw and chat, plain and batch lines, some with a shared prefix; the longest prompt
    has so many words, the shortest is one letter. Short prompts are more frequent and have the longer answers."""
    generator = random.Random(seed)
    prefixes = [text_of(generator, min(longest_words // 4, 90)) for _ in range(4)]
    lines = []
    for number in range(count):
        words = int(longest_words ** generator.random() ** 1.5)
        if number % 97 == 0:
            words = longest_words
        prompt = "a" if number == 5 else text_of(generator, max(1, words))
        if number % 4 == 3:
            prompt = prefixes[number // 4 % len(prefixes)] + " " + text_of(generator, generator.randint(1, 20))
        parameters = parameters_of(generator, number, longest_answer if len(prompt) < 500 else 1 + longest_answer // 8)
        lines.append(shape_request(number, prompt, parameters))
    return lines


def choices_of(number, is_chat):
    """What some requests ask for beside a text: several answers, log-probabilities, biased tokens."""
    parameters = {}
    if number % 18 == 13:  # sampled ones
        parameters["n"] = 4
    if number % 5 == 1 or number % 20 == 17:
        parameters.update({"logprobs": True, "top_logprobs": 3} if is_chat else {"logprobs": 2})
    if number % 8 == 2:
        parameters["logit_bias"] = {"5": -100, "300": 1.5}
    return parameters


def shape_request(number, prompt, parameters):
    identity = f"request-{number:04d}"
    parameters = {**parameters, **choices_of(number, number % 7 == 6 or number % 20 == 11)}
    messages = [{"role": "user", "content": prompt}]
    if number % 7 == 6:
        return {"id": identity, "messages": messages, **parameters}
    if number % 20 == 11:
        return {"custom_id": identity, "method": "POST", "url": "/v1/chat/completions",
                "body": {"messages": messages, **parameters}}
    if number % 20 == 17:
        return {"custom_id": identity, "method": "POST", "url": "/v1/completions",
                "body": {"prompt": prompt, **parameters}}
    return {"id": identity, "prompt": prompt, **parameters}


# Faults


def faults(directory, log=None, at=0, kind="none", term_at=0):
    """The environment of the fault library (tests/faults/faults.c)."""
    environment = {"NJ_FAULT_DIRECTORY": directory, "NJ_FAULT_AT": str(at), "NJ_FAULT_KIND": kind,
                   "NJ_FAULT_TERM_AT": str(term_at)}
    if log is not None:
        environment["NJ_FAULT_LOG"] = log
    return environment


def read_faults(directory, read_at=0, no_direct=False, no_uring=False):
    """The same for how the files of a directory are read."""
    environment = dict(faults(directory), NJ_FAULT_READ_AT=str(read_at))
    if no_direct:
        environment["NJ_FAULT_NO_DIRECT"] = "1"
    if no_uring:
        environment["NJ_FAULT_NO_URING"] = "1"
    return environment


def read_fault_log(path):
    """The counted calls: (number, call, path), ascending."""
    with open(path, encoding="utf-8") as file:
        calls = [line.rstrip("\n").split(" ", 2) for line in file]
    return sorted((int(number), call, where) for number, call, where in calls)


def has_instructions(name):
    with open("/proc/cpuinfo", encoding="ascii") as file:
        return re.search(rf"^flags\s*:.*\b{name}\b", file.read(), re.M) is not None


def least_memory_in(message):
    """The size that a refusal for want of memory names: what may be pasted after --kv-memory."""
    match = re.search(r"--kv-memory[ =]([0-9][0-9.]*[A-Za-z]*)", message)
    return match.group(1) if match else None


def main():
    """unittest.main with an exit code that tells ctest when everything was skipped."""
    program = unittest.main(exit=False, verbosity=2)
    result = program.result
    for test, reason in result.skipped:
        say(f"skipped: {test}: {reason}")
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(SKIPPED if result.skipped and len(result.skipped) == result.testsRun else 0)
