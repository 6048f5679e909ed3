#!/usr/bin/env python3
"""What may change between two runs of a job, what a run may be told to accept or to answer again, and that a retry is
neither lost nor done twice, wherever it is killed."""
import collections
import json
import os
import random
import shutil
import signal
import time

from support import Workspace, count_lines, faults, main, mixed_requests, read_fault_log, record_id, say

SETTLED_SECONDS = 2.1  # a file that is younger when it is read is read again
KILLED = -signal.SIGKILL
WRITES = ("write", "pwrite", "writev")
USED_AGAIN = "the index of the last run is used"


def longer(request, more):
    """The same request with a larger max_tokens."""
    copy = json.loads(json.dumps(request))
    (copy["body"] if "body" in copy else copy)["max_tokens"] += more
    return copy


class ResumeRules(Workspace):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.requests = mixed_requests(40, longest_words=30, longest_answer=12, seed=21)

    def words(self, name, *options):
        return self.job(name, self.path(name + ".jsonl"), "--threads", 1, "--token-budget", 16, *options)

    def begin(self, name, requests=None):
        """A finished job over these requests."""
        self.write_lines(name + ".jsonl", self.requests if requests is None else requests)
        return self.nightjar(*self.words(name))

    def attempts(self, name):
        """How many records have this attempt number, over both logs; no id may have one twice."""
        records = self.records(name) + self.records(name, "errors.jsonl")
        pairs = [(record_id(record), record["attempt"]) for record in records]
        self.assertEqual(len(pairs), len(set(pairs)), "a request was answered twice")
        return collections.Counter(attempt for _, attempt in pairs)

    def test_changed_and_removed_lines(self):
        self.begin("changes")
        before = self.export("changes")
        changed = [dict(self.requests[0], prompt="something else")] + self.requests[1:-2]
        self.write_lines("changes.jsonl", changed)
        refused = self.nightjar("resume", self.path("changes"), code=65)
        self.assertIn("1 requests changed, 2 removed", refused.stderr)
        self.assertIn("changes.jsonl:1 changed", refused.stderr)
        self.assertIn("--accept changed,removed", refused.stderr)
        refused = self.nightjar(*self.words("changes", "--accept", "changed"), code=65)
        self.assertIn("--accept removed", refused.stderr)
        self.assertEqual(self.export("changes"), before)
        accepted = self.nightjar("resume", self.path("changes"), "--accept", "changed", "--accept", "removed")
        self.assertIn("1 requests have changed", accepted.stderr)
        self.assertIn("2 requests are gone", accepted.stderr)
        self.assertEqual(self.attempts("changes"), {1: len(self.requests), 2: 1})
        self.begin("changed-anew", changed)
        self.assert_same_export(self.export("changes"), self.export("changed-anew"), "accepted changes")
        self.assertIn("0 answered in", self.nightjar("resume", self.path("changes")).stderr)

    def test_unchanged_input_is_not_read_again(self):
        bad = [b'{"id": "bad", "prompt": 5}']
        source = self.write_lines("unchanged.jsonl", self.requests[:10] + bad)
        time.sleep(SETTLED_SECONDS)
        self.nightjar(*self.words("unchanged"), code=1)
        export = self.export("unchanged")
        for again in (self.words("unchanged"), ("resume", self.path("unchanged"))):
            result = self.nightjar(*again, code=1)
            self.assertIn(USED_AGAIN, result.stderr)
            self.assertIn("0 answered in", result.stderr)
            self.assertEqual(self.export("unchanged"), export)
        # A strict run names the bad line, which the index alone cannot.
        refused = self.nightjar(*self.words("unchanged", "--strict"), code=65)
        self.assertIn("unchanged.jsonl:11", refused.stderr)
        # A lost answer is computed again from the line that the index says.
        with open(self.path("unchanged", "results.jsonl"), "r+b") as file:
            file.truncate(0)
        self.assertIn(USED_AGAIN, self.nightjar("resume", self.path("unchanged"), code=1).stderr)
        self.assertEqual(self.export("unchanged", code=0), export)
        # More lines, and the same time of modification.
        times = os.stat(source)
        self.write_lines("unchanged.jsonl", self.requests[:12] + bad)
        os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
        result = self.nightjar("resume", self.path("unchanged"), code=1)
        self.assertNotIn(USED_AGAIN, result.stderr)
        self.assertIn("2 requests are new", result.stderr)

    def test_damaged_index(self):
        source = self.write_lines("damaged.jsonl", self.requests)
        os.utime(source)
        time.sleep(SETTLED_SECONDS)
        self.nightjar(*self.words("damaged"))
        export, index = self.export("damaged"), self.path("damaged", "index.bin")
        with open(index, "rb") as file:
            content = file.read()
        for label, damaged in (("cut", content[:len(content) // 2]), ("empty", b""),
                               ("a bit", content[:200] + bytes([content[200] ^ 1]) + content[201:])):
            with self.subTest(label):
                with open(index, "wb") as file:
                    file.write(damaged)
                result = self.nightjar("resume", self.path("damaged"))
                self.assertIn("the index is damaged", result.stderr)
                self.assertNotIn(USED_AGAIN, result.stderr)
                self.assertEqual(self.export("damaged"), export)
                with open(index, "rb") as file:
                    self.assertEqual(file.read(), content, "made anew, the index has the same bytes")

    def test_other_model_is_refused(self):
        self.begin("model", self.requests[:4])
        other = self.path("other.gguf")
        if not os.path.exists(other):
            shutil.copy(self.model, other)
            with open(other, "r+b") as file:
                file.seek(-1, os.SEEK_END)
                last = file.read(1)
                file.seek(-1, os.SEEK_END)
                file.write(bytes([last[0] ^ 1]))
        refused = self.nightjar("resume", self.path("model"), "-m", other, code=65)
        self.assertIn("the model's digest was", refused.stderr)
        moved = self.path("moved.gguf")
        shutil.copy(self.model, moved)
        self.nightjar("resume", self.path("model"), "-m", moved, "--threads", 2, "--token-budget", 64)

    def prepare_retry(self, name, requests):
        """A finished job whose input allows longer answers now; what the export will be, and how many were cut."""
        enlarged = [longer(request, 8) for request in requests]
        self.begin(name + "-expected", enlarged)
        self.begin(name, requests)
        cut = sum(b'"finish_reason":"length"' in line for line in self.export(name).splitlines())
        self.write_lines(name + ".jsonl", enlarged)
        return self.export(name + "-expected"), cut

    def test_retry_by_ids(self):
        self.begin("ids", self.requests[:8])
        before = self.export("ids")
        unknown = self.write_lines("unknown.txt", [b"request-0001", b"nobody"])
        refused = self.nightjar("resume", self.path("ids"), "--retry", "ids=unknown.txt", code=65)
        self.assertIn('"nobody"', refused.stderr)
        self.assertIn(unknown.split("/")[-1] + ":2", refused.stderr)
        self.nightjar("resume", self.path("ids"), "--retry", "ids=none.txt", code=66)
        self.write_lines("known.txt", [b"request-0001", b"request-0005"])
        self.nightjar("resume", self.path("ids"), "--retry", "ids=known.txt")
        self.assertEqual(self.attempts("ids"), {1: 8, 2: 2})
        self.assertEqual(self.export("ids"), before)

    def test_retry_killed_again_and_again(self):
        generator = random.Random(4)
        expected, cut = self.prepare_retry("killed", self.requests)
        total = count_lines(self.path("killed", "results.jsonl"))
        slowly = ("--token-budget", 2)  # so that a kill comes before the end, whatever else the machine does
        kills = 0
        for number in range(8):
            words = (self.words("killed", "--retry", "length"), ("resume", self.path("killed")))[number % 2]
            process = self.start(*words, *slowly)
            reached = self.wait_for_records(process, "killed", total + (number + 1) * cut // 10)
            time.sleep(generator.uniform(0, 0.01))
            process.kill()
            process.wait()
            kills += process.returncode == KILLED and reached
        self.nightjar("resume", self.path("killed"))
        self.assertGreaterEqual(kills, 4)
        self.assertEqual(self.attempts("killed"), {1: len(self.requests), 2: cut})
        self.assert_same_export(self.export("killed"), expected, "a retry that was killed")
        self.assertFalse(os.path.exists(self.path("killed", "retry.bin")))
        say(f"a retry of {cut} requests killed {kills} times")

    def test_retry_killed_at_every_call(self):
        expected, cut = self.prepare_retry("faults", self.requests[:5])
        self.assertGreaterEqual(cut, 2)
        whole = {1: 5, 2: cut}
        retry = ("resume", self.path("faults"), "--quiet", "--token-budget", 4, "--retry", "length")
        shutil.copytree(self.path("faults"), self.path("kept"))

        def start_over():
            shutil.rmtree(self.path("faults"))
            shutil.copytree(self.path("kept"), self.path("faults"))

        log = self.path("faults.log")
        self.nightjar(*retry, faults=faults(self.path("faults"), log=log))
        self.assertEqual(self.attempts("faults"), whole)
        calls = read_fault_log(log)
        self.assertIn("retry.bin", {os.path.basename(path) for _, _, path in calls})
        ends = collections.Counter()
        for point, call, path in calls:
            for kind in ("kill", "half"):
                if kind == "half" and call not in WRITES:
                    continue
                with self.subTest(f"{kind} at call {point} ({call} {os.path.basename(path)})"):
                    start_over()
                    self.nightjar(*retry, code=KILLED, faults=faults(self.path("faults"), at=point, kind=kind))
                    noted = os.path.exists(self.path("faults", "retry.bin"))
                    self.nightjar("resume", self.path("faults"), "--quiet")
                    done = self.attempts("faults")
                    if noted:
                        self.assertEqual(done, whole)
                    else:
                        self.assertIn(done, ({1: 5}, whole), "half a retry was lost")
                    ends["noted" if noted else "not begun" if done == {1: 5} else "done"] += 1
                    if done == {1: 5}:
                        self.nightjar(*retry)
                    self.assert_same_export(self.export("faults"), expected, "after a kill")
        say(f"a retry killed at {len(calls)} calls: {dict(ends)}")
        self.assertTrue(ends["noted"] and ends["not begun"])


if __name__ == "__main__":
    main()
