#!/usr/bin/env python3
"""As faults.py, for a job whose input is copied first: killed at every call that changes its files, it goes on
from standard input given once more if the copy was not complete, and without any input if it was."""
import collections
import gzip
import os
import shutil
import signal
import time

from support import Workspace, faults, main, mixed_requests, read_fault_log, say

WRITES = ("write", "pwrite", "writev")
KILLED = -signal.SIGKILL
FINISHED = 1  # one request of the input is bad


class FaultsOfSources(Workspace):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        lines = mixed_requests(5, longest_words=12, longest_answer=6, seed=5)
        lines[3:3] = [b'{"id": "bad", "prompt": 5}']
        # Incompressible, and longer than one block of the copy.
        lines[1:1] = [b'{"id": "long", "prompt": "' + os.urandom(180 << 10).hex().encode() + b'"}']
        with open(cls.write_lines("small.jsonl", lines), "rb") as file:
            cls.text = file.read()
        cls.packed = cls.path("small.jsonl.gz")

    def restore_packed(self):
        with open(self.packed, "wb") as file:
            file.write(gzip.compress(self.text, mtime=0))

    def words(self, name, source):
        return self.job(name, source, "--quiet", "--threads", 1, "--token-budget", 4)

    def start_over(self, name, source, **options):
        if source == "-":
            options["input"] = self.text
        return self.nightjar(*self.words(name, source), **options)

    def recover(self, name, source, label):
        """Through `resume` without the input where there is a complete copy, else with the input once more."""
        complete = os.path.exists(self.path(name, "spool", "spool.bin"))
        begun = os.path.exists(self.path(name, "job.json"))
        if source != "-" and complete:
            os.remove(self.packed)
        if source == "-" and begun and not complete:
            refused = self.nightjar("resume", self.path(name), code=66)
            self.assertIn("with the same input", refused.stderr, label)
            refused = self.nightjar(*self.words(name, source), code=66)
            self.assertIn("give the same input again", refused.stderr, label)
        if complete:
            self.nightjar("resume", self.path(name), "--quiet", code=FINISHED)
        else:
            self.start_over(name, source, code=FINISHED)
        self.assertEqual(len(os.listdir(self.path(name, "spool"))), 2, label)
        if not os.path.exists(self.packed):
            self.restore_packed()
        return complete

    def enumerate_calls(self, prefix, source):
        began = time.monotonic()
        self.restore_packed()
        self.start_over(prefix, source, code=FINISHED)
        baseline = self.export(prefix)
        log, counted = self.path(prefix + ".log"), prefix + "-counted"
        self.start_over(counted, source, code=FINISHED, faults=faults(self.path(counted), log=log))
        calls = read_fault_log(log)
        self.assertTrue([path for _, call, path in calls if call in WRITES and path.endswith("/spool/blocks.1")])
        self.assertTrue([path for _, call, path in calls if call == "rename" and "/spool/spool.bin" in path])
        counts = collections.Counter()
        for point, call, path in calls:
            in_spool = "/spool" in path
            for kind in ("kill", "half", "enospc", "eio"):
                if (kind == "half" and call not in WRITES) or (kind in ("enospc", "eio") and not in_spool):
                    continue
                label = f"{kind} at call {point} ({call} {os.path.basename(path)})"
                name = f"{prefix}-{kind}-{point}"
                with self.subTest(label):
                    result = self.start_over(name, source, code=None,
                                             faults=faults(self.path(name), at=point, kind=kind))
                    accepted = (KILLED,) if kind in ("kill", "half") else (FINISHED, 73, 74)
                    self.assertIn(result.returncode, accepted, f"{label}: {result.stderr}")
                    if result.returncode != FINISHED:
                        counts[self.recover(name, source, label)] += 1
                    self.assert_same_export(self.export(name), baseline, label)
        say(f"{source}: {len(calls)} calls, {counts[False]} jobs given their input again, {counts[True]} resumed "
            f"without it, {time.monotonic() - began:.0f} s")
        self.assertGreater(min(counts[False], counts[True]), 10)

    def test_standard_input(self):
        self.enumerate_calls("stdin", "-")

    def test_copying_again(self):
        """The same command with more lines on standard input, killed: the job can still be resumed without it."""
        self.restore_packed()
        more = self.text + b'{"id":"added","prompt":"stone","max_tokens":2}\n'
        words = self.words("longer", "-")
        self.nightjar(*words, code=FINISHED, input=self.text)
        shutil.copytree(self.path("longer"), self.path("begun"))
        log = self.path("longer.log")
        self.nightjar(*words, code=FINISHED, input=more, faults=faults(self.path("longer"), log=log))
        baseline = self.export("longer")
        lines = set()
        for point, call, path in read_fault_log(log):
            label = f"kill at call {point} ({call} {os.path.basename(path)})"
            name = f"longer-{point}"
            with self.subTest(label):
                shutil.copytree(self.path("begun"), self.path(name))
                result = self.nightjar(*self.words(name, "-"), code=None, input=more,
                                       faults=faults(self.path(name), at=point, kind="half"))
                self.assertEqual(result.returncode, KILLED, label)
                self.nightjar("resume", self.path(name), "--quiet", code=FINISHED)
                lines.add(len(self.export(name).splitlines()))
                self.nightjar(*self.words(name, "-"), code=FINISHED, input=more)
                self.assert_same_export(self.export(name), baseline, label)
        total = len(baseline.splitlines())
        self.assertEqual(lines, {total - 1, total})

    def test_gzip(self):
        self.enumerate_calls("gzip", self.packed)


if __name__ == "__main__":
    main()
