#!/usr/bin/env python3
"""The command line: usage, messages, exit codes, progress, status and export."""
import calendar
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import stat
import struct
import termios
import time
import unittest

from support import JOB_TIME_SECONDS, Workspace, has_instructions, least_memory_in, main, mixed_requests, say, send


class Usage(Workspace):
    def check(self, words, code, *patterns):
        with self.subTest(" ".join(map(str, words))):
            result = self.nightjar(*words, code=code)
            for pattern in patterns:
                self.assertRegex(result.stderr, pattern)
            self.assertEqual(result.stdout, b"")
            return result
        return None

    def test_no_command(self):
        self.check([], 64, "Usage: nightjar", "run", "resume", "status", "export", "plan", "doctor", "bench-model")

    def test_help_goes_to_standard_output(self):
        for words in (["help"], ["--help"], ["help", "run"], ["run", "--help"], ["run", "-h"], ["help", "resume"],
                      ["status", "--help"], ["export", "--help"], ["plan", "--help"], ["doctor", "-h"],
                      ["help", "bench-model"], ["resume", "-m", "x", "--help"]):
            with self.subTest(words):
                result = self.nightjar(*words)
                self.assertIn(b"Usage: nightjar", result.stdout)
                self.assertEqual(result.stdout.count(b"Example: nightjar"), 1)
                self.assertEqual(result.stderr, "")
                self.assertLessEqual(max(map(len, result.stdout.splitlines())), 110)

    def test_version(self):
        self.assertRegex(self.nightjar("--version").stdout.decode(), r"^nightjar \d+\.\d+\.\d+ \(arithmetic \d+\)\n$")

    def test_unknown_command(self):
        self.check(["rum"], 64, "did you mean run")
        self.check(["exprot"], 64, "did you mean export")
        self.check(["resum", "x"], 64, "did you mean resume")
        self.check(["docter"], 64, "did you mean doctor")
        self.check(["bench-modle"], 64, "did you mean bench-model")
        self.check(["frobnicate"], 64, "unknown command frobnicate")
        self.check(["help", "stauts"], 64, "did you mean status")

    def test_bad_options(self):
        run = ["run", "-m", "m.gguf", "-o", "out", "in.jsonl"]
        cases = [
            (["--thread", "2"], "unknown option --thread; did you mean --threads"),
            (["--kvmemory=1G"], "unknown option --kvmemory; did you mean --kv-memory"),
            (["--zzz"], "unknown option --zzz"),
            (["-x"], "unknown option -x"),
            (["--json"], "unknown option --json"),
            (["--threads"], "--threads needs a value"),
            (["--quiet=yes"], "--quiet takes no value"),
        ]
        bad_values = {
            "threads": (("0", "-1", "2.5", "many", "", "99999", "99999999999999999999"), "whole number from 1 to"),
            "token-budget": (("0", "x", "1e3", "-512"), "whole number from 1 to"),
            "kv-memory": (("0", "-1", "x", "5XiB", "1.2.3", "GiB", "0x10", "9999999999GiB", "1 GiB extra"), "512MiB"),
            "kernels": (("", "sse9", "AVX2"), "auto.*reference"),
            "kv-type": (("", "f32", "q4", "Q8"), "f16 or q8"),
            "job-time": (("yesterday", "2026-13-01", "2026-02-30", "2026-01-01T25:00:00Z", "-5", "2026-01-01T10"),
                         "seconds since 1970"),
            "cache-dir": (("",), "not empty"),
        }
        cases += [([f"--{name}", value], f"--{name}.*{accepted}")
                  for name, (values, accepted) in bad_values.items() for value in values]
        for words, pattern in cases:
            result = self.check(run + words, 64, pattern)
            self.assertEqual(len(result.stderr.splitlines()), 1, "one clear message")

    def test_missing_arguments(self):
        self.check(["run", "-o", "out", "in.jsonl"], 64, "-m")
        self.check(["run", "-m", self.model, "in.jsonl"], 64, "-o")
        self.check(["run", "-m", self.model, "-o", "out"], 64, "input")
        self.check(["run", "-m", self.model, "-o", "out", "-", "-"], 64, "standard input")
        for command in ("resume", "status", "export"):
            self.check([command], 64, "directory")
            self.check([command, "a", "b"], 64, "one job directory")

    def test_control_characters_are_escaped(self):
        result = self.nightjar("run\033[31m\n", code=64)
        self.assertNotIn("\033", result.stderr)
        self.assertIn("\\x1b[31m\\x0a", result.stderr)

    def test_kernels_that_cannot_run(self):
        lacking = [name for name in ("avx2", "avx-vnni", "avx512-vnni")
                   if not has_instructions(name.replace("-", "_"))]
        if not lacking:
            raise unittest.SkipTest("this CPU runs all kernels there are")
        for name in lacking:
            self.check(["run", "-m", self.model, "-o", "out", "--kernels", name, self.model], 69, name)

    def test_no_cache_directory(self):
        source = self.write_lines("cache.jsonl", [{"id": "a", "prompt": "x", "max_tokens": 1}])
        nowhere = {"HOME": "", "XDG_CACHE_HOME": ""}
        result = self.nightjar(*self.job("nowhere", source), code=64, environment=nowhere)
        self.assertIn("--cache-dir", result.stderr)
        self.nightjar(*self.job("nowhere", source, "--cache-dir", self.path("my-cache")), environment=nowhere)
        self.assertTrue(os.listdir(self.path("my-cache")))
        self.nightjar(*self.job("xdg", source), environment={"XDG_CACHE_HOME": self.path("xdg-cache")})
        self.assertTrue(os.listdir(self.path("xdg-cache", "nightjar")))


class Failures(Workspace):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.source = cls.write_lines("small.jsonl", mixed_requests(5, 10, 6))

    def test_input_that_is_not_there(self):
        result = self.nightjar(*self.job("a", self.path("none.jsonl")), code=66)
        self.assertIn("none.jsonl", result.stderr)
        os.makedirs(self.path("empty"), exist_ok=True)
        self.nightjar(*self.job("b", self.path("empty")), code=66)

    def run_with_model(self, path, code):
        return self.nightjar("run", "-m", path, "-o", self.path("model-" + os.path.basename(path)), self.source,
                             code=code)

    def test_bad_models(self):
        self.assertIn("none.gguf", self.run_with_model(self.path("none.gguf"), 66).stderr)
        with open(self.model, "rb") as file:
            good = file.read()
        damaged = {"text.gguf": b"hello, I am no model\n" * 9, "empty.gguf": b"", "cut.gguf": good[:len(good) // 2],
                   "head.gguf": good[:100], "magic.gguf": b"GGML" + good[4:],
                   "version.gguf": good[:4] + b"\x09" + good[5:]}
        for name, content in damaged.items():
            with self.subTest(name):
                with open(self.path(name), "wb") as file:
                    file.write(content)
                self.assertIn(name, self.run_with_model(self.path(name), 65).stderr)
        self.run_with_model(self.root, (65, 66))

    def test_output_that_cannot_be_made(self):
        blocked = self.write_lines("a-file", [b"content"])
        for where in (blocked, os.path.join(blocked, "below"), "/proc/nightjar-test"):
            with self.subTest(where):
                result = self.nightjar("run", "-m", self.model, "-o", where, self.source, code=73)
                self.assertIn(where, result.stderr)
        with open(blocked, "rb") as file:
            self.assertEqual(file.read(), b"content\n")

    def test_output_that_holds_something_else(self):
        os.makedirs(self.path("documents"))
        with open(self.path("documents", "results.jsonl"), "w", encoding="ascii") as file:
            file.write("something of mine\n")
        self.nightjar(*self.job("documents", self.source), code=(65, 73))
        with open(self.path("documents", "results.jsonl"), encoding="ascii") as file:
            self.assertEqual(file.read(), "something of mine\n")

    def test_too_little_memory_names_the_smallest(self):
        refused = self.nightjar(*self.job("memory", self.source, "--kv-memory", "1B"), code=78)
        least = least_memory_in(refused.stderr)
        self.assertIsNotNone(least, refused.stderr)
        say(refused.stderr.strip().splitlines()[-1])
        self.nightjar(*self.job("memory", self.source, "--kv-memory", least))

    def test_directories_that_are_no_job(self):
        os.makedirs(self.path("nothing"))
        for command in ("resume", "status", "export"):
            for where in ("nothing", "absent", "model.gguf"):
                with self.subTest(command=command, where=where):
                    result = self.nightjar(command, self.path(where), code=(65, 66))
                    self.assertIn(where, result.stderr)
        self.assertEqual(os.listdir(self.path("nothing")), [])

    def test_another_job_in_the_directory(self):
        self.nightjar(*self.job("first", self.source))
        before = self.export("first")
        other = self.path("other.gguf")
        shutil.copy(self.model, other)
        with open(other, "r+b") as file:
            file.seek(-9, os.SEEK_END)
            file.write(b"\x3c")
        changed = self.write_lines("changed.jsonl", [dict(line, prompt="changed", messages=None, body=None)
                                                     for line in mixed_requests(2, 10, 6) if "prompt" in line])
        self.nightjar("run", "-m", other, "-o", self.path("first"), self.source, code=65)
        self.nightjar("run", "-m", self.model, "-o", self.path("first"), changed, code=65)
        self.assertEqual(self.export("first"), before)


class Progress(Workspace):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        lines = mixed_requests(60, 60, 60, seed=6)
        cls.source = cls.write_lines("some.jsonl", lines + [b"null"])

    def test_piped_output(self):
        result = self.nightjar(*self.job("piped", self.source, "--threads", 2), code=1)
        self.assertNotIn("\r", result.stderr)
        self.assertNotIn("\033", result.stderr)
        self.assertEqual(result.stdout, b"")
        for pattern in (r"model .*model\.gguf", r"kernels +\w+, 2 threads", "max_tokens 512", "temperature 0", "seed 0",
                        r"output .*piped", r"requests +61: 60 to answer, 0 answered before, 1 failed",
                        r"60 of 61 requests answered, 1 failed", r"this run +60 answered in",
                        r"results\.jsonl", r"errors\.jsonl", "export .*piped"):
            with self.subTest(pattern):
                self.assertRegex(result.stderr, pattern)
        self.assertRegex(result.stderr, r"\d+\.\d %  \d+/61 requests")
        self.assertLess(len(result.stderr.splitlines()), 40)

    def test_quiet(self):
        lines = self.nightjar(*self.job("quiet", self.source, "--quiet"), code=1).stderr.splitlines()
        self.assertEqual([line for line in lines if not line.startswith("warning: ")], [])

    def run_on_terminal(self, name, columns, environment=None):
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = self.start(*self.job(name, self.source, "--threads", 1, "--token-budget", 16), stderr=slave,
                             environment=environment or {})
        os.close(slave)
        chunks = []
        while True:
            ready, _, _ = select.select([master], [], [], 60)
            try:
                chunk = os.read(master, 65536) if ready else b""
            except OSError:  # EIO: the other end is closed
                chunk = b""
            if not chunk:
                break
            chunks.append(chunk)
        os.close(master)
        process.wait()
        self.assertEqual(process.returncode, 1)
        return b"".join(chunks).decode()

    def test_terminal(self):
        for columns in (120, 60, 24):
            with self.subTest(columns=columns):
                text = self.run_on_terminal(f"terminal-{columns}", columns)
                drawn = [part for line in text.split("\n") for part in line.rstrip("\r").split("\r") if "%" in part]
                say(f"{columns} columns: {len(drawn)} progress lines, as: {drawn[-1].strip()}")
                self.assertGreater(len(drawn), 1)
                self.assertLess(max(map(len, drawn)), columns)
                self.assertEqual("requests" in drawn[-1], columns >= 60)

    def test_no_color(self):
        plain = self.run_on_terminal("plain", 100, {"NO_COLOR": "1"})
        self.assertNotIn("\033", plain)


class Jobs(Workspace):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.source = cls.write_lines("long.jsonl", mixed_requests(3000, 60, 200, seed=4))
        cls.small = cls.write_lines("small.jsonl", mixed_requests(30, 20, 20, seed=8))

    def status(self, name):
        return json.loads(self.nightjar("status", self.path(name), "--json").stdout)

    def test_unfinished_job(self):
        name = "unfinished"
        process = self.start(*self.job(name, self.source, "--threads", 1, "--token-budget", 16))
        self.wait_for_output(process, name)
        running = self.status(name)
        end = time.monotonic() + 30
        while running["requests"] == 0 and time.monotonic() < end:  # status.json is written every two seconds
            time.sleep(0.1)
            running = self.status(name)
        self.assertEqual((running["state"], running["running"]), ("running", True))
        self.assertIn(str(process.pid), running["holder"])
        self.assertEqual(running["requests"], 3000)
        text = self.nightjar("status", self.path(name)).stdout.decode()
        self.assertRegex(text, rf"running .*\b{process.pid}\b")
        self.assertRegex(text, "of 3000 ")
        exported = self.nightjar("export", self.path(name), code=75)
        self.assertIn("partial", exported.stderr)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 75)
        command = re.search(r"to go on: (.*)", err.decode()).group(1)
        self.assertTrue(command.endswith(f"resume {self.path(name)}"), command)
        stopped = self.status(name)
        self.assertEqual((stopped["state"], stopped["running"], stopped["exit_code"]), ("interrupted", False, 75))
        self.assertGreater(stopped["percent"], 0)
        self.assertLess(stopped["percent"], 100)
        self.check_partial_export(name)

    def check_partial_export(self, name):
        exported = self.nightjar("export", self.path(name), code=75)
        records = [json.loads(line) for line in exported.stdout.splitlines()]
        self.assertEqual(len(records), self.record_count(name))
        missing = int(re.search(r"partial: (\d+) requests", exported.stderr).group(1))
        self.assertEqual(len(records) + missing, 3000)

    def test_export_without_index(self):
        self.nightjar(*self.job("lost-index", self.small))
        os.remove(self.path("lost-index", "index.bin"))
        exported = self.nightjar("export", self.path("lost-index"), code=75)
        self.assertIn("has not read its input to the end", exported.stderr)

    def test_finished_job(self):
        self.nightjar(*self.job("done", self.small))
        status = self.status("done")
        self.assertEqual((status["state"], status["running"], status["percent"]), ("finished", False, 100))
        self.assertEqual((status["requests"], status["requests_done"], status["requests_failed"]), (30, 30, 0))
        self.assertRegex(self.nightjar("status", self.path("done")).stdout.decode(), r"finished")
        before = os.stat(self.path("done", "results.jsonl")).st_mtime_ns
        self.nightjar("resume", self.path("done"))
        self.nightjar(*self.job("done", self.small))
        self.assertEqual(os.stat(self.path("done", "results.jsonl")).st_mtime_ns, before)

    def test_resume_needs_nothing_but_the_directory(self):
        words = ["run", "-m", os.path.relpath(self.model, self.root), "-o", "relative", "--job-time", "0",
                 "--kv-type", "f16", os.path.relpath(self.small, self.root)]
        process = self.start(*words, "--threads", 1, "--token-budget", 4)
        self.wait_for_output(process, "relative")
        send(process, signal.SIGTERM, 30)
        self.nightjar("resume", self.path("relative"), "--threads", 2, "--kernels", "reference", "--token-budget", 64,
                      "--kv-memory", "64MiB")
        self.nightjar(*words[:4], "fresh", *words[5:])
        self.assert_same_export(self.export("relative"), self.export("fresh"), "resumed from elsewhere")
        words[words.index("f16")] = "q8"
        self.assertIn("the KV type was f16, now q8", self.nightjar(*words, code=65).stderr)
        self.assertIn("--kv-type", self.nightjar("resume", self.path("relative"), "--kv-type", "q8", code=64).stderr)

    def test_output_is_private(self):
        self.nightjar(*self.job("private", self.small))
        for folder, _, names in os.walk(self.path("private")):
            for path in [folder] + [os.path.join(folder, name) for name in names]:
                self.assertEqual(stat.S_IMODE(os.stat(path).st_mode) & 0o077, 0, path)

    def created_times(self, name):
        bodies = [json.loads(line)["response"]["body"] for line in self.export(name).splitlines()
                  if b"custom_id" in line]
        self.assertTrue(bodies)
        return {body["created"] for body in bodies}

    def test_job_time(self):
        for label, text, seconds in (("zulu", "2026-01-31T22:00:00Z", JOB_TIME_SECONDS), ("number", "86400", 86400),
                                     ("offset", "2026-02-01 00:30:00+02:30", JOB_TIME_SECONDS),
                                     ("day", "1970-01-02", 86400), ("minute", "1970-01-02T00:01", 86460)):
            with self.subTest(text):
                self.nightjar("run", "-m", self.model, "-o", self.path(label), "--job-time", text, self.small)
                self.assertEqual(self.created_times(label), {seconds})
        began = calendar.timegm(time.gmtime())
        self.nightjar("run", "-m", self.model, "-o", self.path("now"), self.small)
        first = self.created_times("now")
        self.assertTrue(began <= min(first) <= calendar.timegm(time.gmtime()))

    def test_content_in_parts(self):
        texts = ["stone river", "", "the wind"]
        parts = [{"type": "text", "text": text} for text in texts]
        contents = {"string": "\n".join(texts), "parts": parts, "last part": parts[2:], "last": texts[2]}
        source = self.write_lines("parts.jsonl", [
            {"custom_id": name, "method": "POST", "url": "/v1/chat/completions",
             "body": {"messages": [{"role": "user", "content": content}], "max_tokens": 8}}
            for name, content in contents.items()])
        self.nightjar(*self.job("parts", source))
        answers = {record["custom_id"]: (record["response"]["body"]["usage"], record["response"]["body"]["choices"])
                   for record in self.records("parts")}
        self.assertEqual(answers["parts"], answers["string"])
        self.assertEqual(answers["last part"], answers["last"])
        self.assertNotEqual(answers["last"], answers["string"])

    def test_export_to_file(self):
        self.nightjar(*self.job("exported", self.small))
        expected = self.export("exported")
        target = self.path("answers.jsonl")
        for previous in (None, b"old content"):
            if previous is not None:
                with open(target, "wb") as file:
                    file.write(previous)
            self.nightjar("export", self.path("exported"), "-o", target)
            with open(target, "rb") as file:
                self.assertEqual(file.read(), expected)
        self.assertEqual([name for name in os.listdir(self.root) if name.endswith(".tmp")], [])
        link = self.path("link.jsonl")
        os.symlink(target, link)
        self.nightjar("export", self.path("exported"), "--output=" + link)
        self.assertTrue(os.path.islink(link))
        self.nightjar("export", self.path("exported"), "-o", "/dev/null")
        self.assertTrue(stat.S_ISCHR(os.stat("/dev/null").st_mode))
        self.nightjar("export", self.path("exported"), "-o", self.path("absent", "x.jsonl"), code=73)
        results = self.path("exported", "results.jsonl")
        with open(results, "rb") as file:
            before = file.read()
        self.nightjar("export", self.path("exported"), "-o", results, code=64)
        with open(results, "rb") as file:
            self.assertEqual(file.read(), before)

    def test_export_survives_no_space(self):
        self.nightjar(*self.job("space", self.small))
        with open("/dev/full", "wb") as full:
            self.nightjar("export", self.path("space"), stdout=full, code=74)
            self.nightjar("help", stdout=full, code=74)
            self.nightjar("status", self.path("space"), stdout=full, code=74)
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "wb", buffering=0) as pipe:
            result = self.nightjar("export", self.path("space"), stdout=pipe, code=74)
        self.assertTrue(result.stderr)

    def test_slurm_job_is_named(self):
        result = self.nightjar(*self.job("slurm", self.small), environment={"SLURM_JOB_ID": "4711"})
        self.assertRegex(result.stderr, r"(?i)slurm job +4711")


if __name__ == "__main__":
    main()
