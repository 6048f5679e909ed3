#!/usr/bin/env python3
"""A job killed before, or amid, every single call that changes its files, or told there that the disk is full or
broken, ends with the same bytes when it is resumed."""
import collections
import os
import shutil
import signal
import time

from support import Workspace, faults, main, mixed_requests, read_fault_log, say

WRITES = ("write", "pwrite", "writev")
KILLED = -signal.SIGKILL
FINISHED = 1  # one request of the input is bad


class Faults(Workspace):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        lines = mixed_requests(6, longest_words=12, longest_answer=12, seed=5)
        lines[3:3] = [b'{"id": "bad", "prompt": 5}']
        cls.source = cls.write_lines("small.jsonl", lines)
        cls.count = 0

    def setUp(self):
        if hasattr(type(self), "baseline"):
            return
        self.nightjar(*self.words("baseline"), code=FINISHED)
        type(self).baseline = self.export("baseline")

    def words(self, name):
        return self.job(name, self.source, "--quiet", "--threads", 1, "--token-budget", 4)

    def fresh_name(self):
        type(self).count += 1
        return f"job-{self.count}"

    def calls_of(self, name, **fault):
        """Runs the job with a log of its calls."""
        log = self.path(name + ".log")
        result = self.nightjar(*self.words(name), faults=faults(self.path(name), log=log, **fault), code=None)
        return read_fault_log(log), result.returncode

    def check_recovers(self, name, label):
        self.nightjar(*self.words(name), code=FINISHED)
        self.assert_same_export(self.export(name), self.baseline, label)

    def try_fault(self, point, kind, label, prepare=None, term_at=0):
        """A fresh directory, the fault, then a run without one. Returns the exit code of the faulty run."""
        name = self.fresh_name()
        if prepare is not None:
            prepare(name)
        result = self.nightjar(*self.words(name), code=None,
                               faults=faults(self.path(name), at=point, kind=kind, term_at=term_at))
        if kind in ("kill", "half"):
            self.assertEqual(result.returncode, KILLED, f"{label}: {result.stderr}")
        else:
            # It says so, or the call did not matter; then the answers are there.
            self.assertIn(result.returncode, (FINISHED, 73, 74, 75), f"{label}: {result.stderr}")
            if result.returncode == FINISHED:
                self.assert_same_export(self.export(name), self.baseline, label)
            else:
                self.assertTrue(result.stderr.strip(), f"{label}: no message")
        self.check_recovers(name, label)
        return result.returncode

    def enumerate_calls(self, calls, kinds, prepare=None, term_at=0):
        began = time.monotonic()
        codes = collections.Counter()
        for point, call, path in calls:
            for kind in kinds:
                if kind == "half" and call not in WRITES:
                    continue
                label = f"{kind} at call {point} ({call} {os.path.basename(path)})"
                with self.subTest(label):
                    codes[kind, self.try_fault(point, kind, label, prepare, term_at)] += 1
        say(f"{self._testMethodName}: {len(calls)} calls, {sum(codes.values())} faults in "
            f"{time.monotonic() - began:.0f} s: "
            + ", ".join(f"{kind} ended with {code}: {count}" for (kind, code), count in sorted(codes.items())))
        self.assertTrue(codes)

    def test_count_is_repeatable(self):
        first, _ = self.calls_of(self.fresh_name())
        second, _ = self.calls_of(self.fresh_name())
        kinds = [(call, os.path.basename(path)) for _, call, path in first]
        say("calls of an uninterrupted run: " + ", ".join(f"{call} {count}" for call, count in sorted(
            collections.Counter(call for call, _ in kinds).items())))
        self.assertEqual(len(first), len(second))
        for call in ("write", "fsync", "rename"):
            self.assertIn(call, [kind for kind, _ in kinds])

    def test_killed_at_every_call(self):
        calls, code = self.calls_of(self.fresh_name())
        self.assertEqual(code, FINISHED)
        self.enumerate_calls(calls, ("kill", "half"))

    def test_disk_full_or_broken_at_every_call(self):
        calls, _ = self.calls_of(self.fresh_name())
        self.enumerate_calls(calls, ("enospc", "eio"))

    def test_disk_stays_full(self):
        calls, _ = self.calls_of(self.fresh_name())
        self.enumerate_calls(calls[::3], ("full",))

    def middle_of(self, calls):
        """The first write of a result: SIGTERM there leaves requests in flight."""
        return next(number for number, call, path in calls if call in WRITES and path.endswith("results.jsonl"))

    def test_killed_while_stopping(self):
        calls, _ = self.calls_of(self.fresh_name())
        term_at = self.middle_of(calls)
        stopping, code = self.calls_of(self.fresh_name(), term_at=term_at)
        self.assertEqual(code, 75)
        self.enumerate_calls([call for call in stopping if call[0] >= term_at], ("kill", "half", "enospc"),
                             term_at=term_at)

    def test_killed_while_recovering(self):
        calls, _ = self.calls_of(self.fresh_name())
        torn_at = self.middle_of(calls)

        def leave_torn_tail(name):
            self.nightjar(*self.words(name), code=KILLED, faults=faults(self.path(name), at=torn_at, kind="half"))

        name = self.fresh_name()
        leave_torn_tail(name)
        recovering, code = self.calls_of(name)
        self.assertEqual(code, FINISHED)
        self.enumerate_calls(recovering, ("kill",), prepare=leave_torn_tail)

    def test_export_replaces_a_file_whole_or_not_at_all(self):
        target = self.path("exports", "kept.jsonl")
        codes = collections.Counter()
        for kind in ("kill", "enospc", "eio"):
            for point in range(1, 8):
                os.makedirs(self.path("exports"))
                with open(target, "wb") as file:
                    file.write(b"old")
                result = self.nightjar("export", self.path("baseline"), "-o", target, code=(0, KILLED, 73, 74),
                                       faults=faults(self.path("exports"), at=point, kind=kind))
                codes[kind, result.returncode] += 1
                with open(target, "rb") as file:
                    self.assertIn(file.read(), (b"old", self.baseline))
                if result.returncode != KILLED:
                    self.assertEqual(os.listdir(self.path("exports")), ["kept.jsonl"])
                shutil.rmtree(self.path("exports"))
        say(f"export under faults: {dict(codes)}")
        self.assertGreaterEqual(codes["kill", KILLED], 4)


if __name__ == "__main__":
    main()
