#!/usr/bin/env python3
"""--first N: the input's first requests are answered and shown, and the answers count."""
import json
import os
import re
import signal

from support import Workspace, main, mixed_requests, say, send

REQUESTS = 60
EMPTY_CHECKPOINT_BYTES = 200
BAD = (b"null", b'{"id": "typo", "prompt": "x", "temprature": 1}')


class First(Workspace):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.requests = mixed_requests(REQUESTS, longest_words=40, longest_answer=60, seed=21)
        cls.source = cls.write_lines("mixed.jsonl", [cls.requests[0], BAD[0], *cls.requests[1:3], BAD[1],
                                                     *cls.requests[3:]])
        cls.total = REQUESTS + len(BAD)

    def setUp(self):
        if not hasattr(type(self), "baseline"):
            self.nightjar(*self.job("baseline", self.source, "--quiet"), code=1)
            type(self).baseline = self.export("baseline")
            type(self).decode_tokens = self.runs("baseline")[-1]["decode_tokens"]

    def ids(self, name, file="results.jsonl"):
        return {record.get("id") if "custom_id" not in record else record["custom_id"]
                for record in self.records(name, file)}

    def check_whole(self, name):
        self.assert_same_export(self.export(name), self.baseline, name)
        self.assertEqual(self.record_count(name), self.total, "a finished request was computed again")
        self.assertEqual(sum(run["decode_tokens"] for run in self.runs(name)), self.decode_tokens)

    def test_first_requests_then_the_others(self):
        result = self.nightjar(*self.job("some", self.source, "--first", 4, "--threads", 2), code=75)
        expected = {request.get("id") or request["custom_id"] for request in self.requests[:4]}
        self.assertEqual(self.ids("some"), expected)
        self.assertEqual(self.record_count("some"), 4 + len(BAD), "bad lines have their records too")
        shown = result.stdout.decode()
        self.assertEqual(set(re.findall(r"^request (\S+) \(\d+ tokens\)$", shown, re.M)), expected)
        for record in self.records("some"):
            line = record["text"].strip().split("\n")[0][:20]
            self.assertIn(re.sub(r"[\x00-\x1f\x7f]", lambda control: f"\\x{ord(control[0]):02x}", line), shown)
        self.assertIn(self.requests[0]["prompt"][:60], shown)
        self.assertRegex(result.stderr, r"the first 4 done: 6 of 62 requests have a record")
        self.assertRegex(result.stderr, r"to go on: .*resume .*some")
        status = json.loads(self.nightjar("status", self.path("some"), "--json").stdout)
        self.assertEqual((status["state"], status["exit_code"], status["requests_done"]), ("interrupted", 75, 6))
        self.assertLess(status["percent"], 50)

        again = self.nightjar(*self.job("some", self.source, "--first", 4), code=75)
        self.assertEqual(again.stdout, b"")
        self.assertIn("have their records already", again.stderr)
        more = self.nightjar("resume", self.path("some"), "--first", 6, "--quiet", code=75)
        self.assertEqual(more.stdout.count(b"\nanswer ("), 2, "two more than before")
        self.nightjar("resume", self.path("some"), code=1)
        self.check_whole("some")

    def test_fewer_requests_than_asked_for(self):
        few = self.write_lines("few.jsonl", self.requests[:3])
        result = self.nightjar(*self.job("few", few, "--first", 100), code=0)
        self.assertEqual(result.stdout.count(b"\nanswer ("), 3)
        self.assertIn("finished  3 of 3", result.stderr)
        bad = self.write_lines("bad.jsonl", [*self.requests[:3], *BAD])
        self.nightjar(*self.job("bad", bad, "--first", 3), code=1)
        only_bad = self.write_lines("only-bad.jsonl", BAD)
        self.nightjar(*self.job("only-bad", only_bad, "--first", 3), code=65)

    def test_killed_and_resumed(self):
        words = ("--threads", 1, "--token-budget", 8, "--quiet")
        process = self.start(*self.job("killed", self.source, "--first", 40, *words))
        self.wait_for_records(process, "killed", 12)
        process.kill()
        self.assertEqual(process.wait(), -signal.SIGKILL, "it had ended before")
        process = self.start(*self.job("killed", self.source, "--first", 40, *words))
        self.wait_for_records(process, "killed", 20)
        send(process, signal.SIGTERM, 10)
        self.assertEqual(process.returncode, 75)
        self.assertLess(self.record_count("killed"), 40 + len(BAD), "it had ended before")
        self.nightjar(*self.job("killed", self.source, "--first", 40, *words), code=75)
        self.assertEqual(self.record_count("killed"), 40 + len(BAD))
        self.nightjar("resume", self.path("killed"), code=1)
        self.assert_same_export(self.export("killed"), self.baseline, "killed")
        self.assertEqual(self.record_count("killed"), self.total)

    def test_answers_in_flight_of_others_are_kept(self):
        """What a whole run had begun is not lost by a run of the first requests in between."""
        for records in range(12, 48, 6):  # where it stops is chance, and may be where only prompts were under way
            process = self.start(*self.job("between", self.source, "--threads", 1, "--token-budget", 8, "--quiet"))
            self.wait_for_records(process, "between", records)
            send(process, signal.SIGTERM, 10)
            self.assertEqual(process.returncode, 75)
            if os.path.getsize(self.path("between", "inflight.ckpt")) > EMPTY_CHECKPOINT_BYTES:
                break
        else:
            self.fail("nothing was in flight")
        self.nightjar("resume", self.path("between"), "--first", 5, "--quiet", code=75)
        self.nightjar("resume", self.path("between"), code=1)
        self.check_whole("between")
        say(f"{self.decode_tokens} new tokens in all runs, none twice")

    def test_control_characters_and_long_prompts(self):
        prompts = ["\x1b]0;owned\x07 red \x1b[31m\u202e\x9b", "\n".join(f"line {i}" for i in range(50)), "word " * 300]
        source = self.write_lines("control.jsonl", [
            {"id": "esc\u001b[2J", "messages": [{"role": "system", "content": "be\tbrief"},
                                                {"role": "user", "content": [{"type": "text", "text": prompts[0]}]}],
             "max_tokens": 2},
            *({"id": f"long-{i}", "prompt": prompt, "max_tokens": 2} for i, prompt in enumerate(prompts[1:]))])
        result = self.nightjar(*self.job("control", source, "--first", 3))
        shown = result.stdout.decode()
        self.assertFalse(re.search("[\x00-\x09\x0b-\x1f\x7f\x80-\x9f\u202e]", shown + result.stderr))
        for part in (r"request esc\\x1b[2J", r"  user: \\x1b]0;owned\\x07 red \\x1b[31m", r"  system: be\\x09brief"):
            self.assertIn(part.replace("\\\\", "\\"), shown)
        self.assertIn("\n  line 5\n  ... (", shown)
        self.assertNotIn("line 6", shown)
        self.assertRegex(shown, r"(word ){120}\n  \.\.\. \(900 more bytes\)")

    def test_standard_input(self):
        with open(self.source, "rb") as file:
            content = file.read()
        result = self.nightjar(*self.job("piped", "-", "--first", 3), code=75, input=content)
        self.assertEqual(result.stdout.count(b"\nanswer ("), 3)
        result = self.nightjar("resume", self.path("piped"), "--first", 3, code=75)
        self.assertRegex(result.stderr, r"to go on: .*resume .*piped")
        self.nightjar("resume", self.path("piped"), code=1)
        self.assertEqual(len(self.records("piped")), REQUESTS)

    def test_closed_output(self):
        with open("/dev/full", "wb") as full:
            self.nightjar(*self.job("full", self.source, "--first", 2), stdout=full, code=74)
        self.nightjar("resume", self.path("full"), code=1)
        self.check_whole("full")


if __name__ == "__main__":
    main()
