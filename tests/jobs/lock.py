#!/usr/bin/env python3
"""Two processes never work in one output directory, and no file of a model is ever mapped into memory."""
import re
import signal
import socket

from support import Workspace, main, mixed_requests, say, send


class Lock(Workspace):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.source = cls.write_lines("long.jsonl", mixed_requests(3000, 60, 200, seed=4))

    def start_long_job(self, name):
        process = self.start(*self.job(name, self.source, "--quiet", "--threads", 1, "--token-budget", 16))
        self.wait_for_output(process, name)
        return process

    def test_second_process_is_refused_and_told_who(self):
        first = self.start_long_job("held")
        for words in (self.job("held", self.source), ["resume", self.path("held")]):
            refused = self.nightjar(*words, code=73)
            self.assertRegex(refused.stderr, rf"\b{first.pid}\b")
            self.assertIn(socket.gethostname(), refused.stderr)
            say(refused.stderr.strip().splitlines()[-1])
        self.assertIsNone(first.poll(), "the first process was disturbed")
        send(first, signal.SIGTERM, 30)
        self.assertEqual(first.returncode, 75)

    def test_lock_of_a_dead_process_does_not_hold(self):
        first = self.start_long_job("dead")
        first.kill()
        first.wait()
        second = self.start("resume", self.path("dead"), "--quiet")
        self.wait_for_records(second, "dead", self.record_count("dead") + 1)
        send(second, signal.SIGTERM, 30)
        self.assertEqual(second.returncode, 75)

    def test_model_and_pack_are_never_mapped(self):
        process = self.start_long_job("maps")
        with open(f"/proc/{process.pid}/maps", encoding="utf-8") as file:
            mapped = {line.split(None, 5)[5].strip() for line in file if len(line.split(None, 5)) == 6}
        files = {path for path in mapped if path.startswith("/")}
        say(f"{len(files)} files mapped")
        self.assertIn("nightjar", " ".join(files))
        # Code, and what the C library itself maps (locales); nothing of the model, the cache or the job.
        data = {path for path in files if not re.search(r"\.so(\.|$)|/nightjar$|/locale/|/gconv", path)}
        self.assertEqual(data, set())
        self.assertFalse([path for path in files if path.startswith(self.root)])
        send(process, signal.SIGTERM, 30)


if __name__ == "__main__":
    main()
