#!/usr/bin/env python3
"""A bad line never stops a job: it becomes one error record with its file, line and reason."""
import json

from support import Workspace, main, read_json_lines, say

LONG_LINE_BYTES = 50_000_000
DEPTH = 10_000


def with_parameter(name, value):
    """A line that is good but for one parameter; `value` is JSON text."""
    identity = json.dumps(f"{name}={value[:20]}")
    return f'{{"id": {identity}, "prompt": "good", "{name}": {value}}}'.encode()


# (line, what its reason must say)
BROKEN = [
    (b'{"id": "cut", "prompt": "not clo', "JSON"),
    (b'{"id": "cut2", "prompt": "no brace"', "JSON"),
    (b'not json at all', "JSON"),
    (b'{"id": "two", "prompt": "x"} {"id": "more"}', "JSON"),
    (b'{"id": "utf8", "prompt": "bad \xff\xfe byte"}', "(?i)utf-8|JSON"),
    (b'{"id": "overlong", "prompt": "\xc0\xaf"}', "(?i)utf-8|JSON"),
    (b'\xff\xfe{\x00"\x00', "(?i)utf-8|JSON"),
    (b'{"id": "number", "prompt": 5}', "prompt.*string"),
    (b'{"id": "list", "prompt": ["a"]}', "prompt.*string"),
    (b'{"id": "object", "prompt": {"a": 1}}', "prompt.*string"),
    (b'{"id": "null prompt", "prompt": null}', "prompt.*missing"),
    (b'{"id": "no prompt"}', "prompt.*missing"),
    (b'{"id": "both", "prompt": "a", "messages": [{"role": "user", "content": "b"}]}', "both"),
    (b'{"id": "empty", "prompt": ""}', "no tokens"),
    (b'{"id": "typo", "prompt": "a", "temprature": 1}', "temprature"),
    (b'{"id": "surrogate", "prompt": "\\ud800"}', "(?i)surrogate|unicode|JSON"),
    (b'{"id": "half pair", "prompt": "\\ud83d x"}', "(?i)surrogate|unicode|JSON"),
    (b'{"id": "deep", "prompt": ' + b"[" * DEPTH + b"]" * DEPTH + b"}", "(?i)depth|deep|nest"),
    (b'{"id": "deeper", "a": ' + b'{"a":' * DEPTH + b"1" + b"}" * DEPTH + b"}", "(?i)depth|deep|nest"),
    (b'{"id": "long line", "prompt": "' + b"x" * LONG_LINE_BYTES + b'"}', "longer than|too long"),
    (b'{"id": "long prompt", "prompt": "' + b"wind " * 100_000 + b'"}', "too long"),
    (b"null", "null"),
    (b"5", "object"),
    (b'"text"', "object"),
    (b"[]", "object"),
    (b"{}", "missing"),
    (b'{"id": 5, "prompt": "a"}', "id must be a string"),
    (b'{"id": "", "prompt": "a"}', "id must have"),
    (b'{"id": ' + json.dumps("i" * 1000).encode() + b', "prompt": "a"}', "id must have"),
    (b'{"id": "twice", "id": "again", "prompt": "a"}', "(?i)duplicate"),
    (b'{"id": "good-0", "prompt": "an id that stands already above"}', "good-0.*already"),
    (b'{"id": "m1", "messages": "text"}', "messages.*array"),
    (b'{"id": "m2", "messages": []}', "messages.*empty"),
    (b'{"id": "m3", "messages": [5]}', r"messages\[0\]"),
    (b'{"id": "m4", "messages": [{"role": "user"}]}', r"messages\[0\].content"),
    (b'{"id": "m5", "messages": [{"role": 1, "content": "a"}]}', r"messages\[0\].role"),
    (b'{"id": "m6", "messages": [{"content": "a"}]}', r"messages\[0\].role"),
    (b'{"id": "m7", "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, '
     b'{"type": "image_url", "image_url": {"url": "x"}}]}]}', r"messages\[0\].content\[1\].*image_url"),
    (b'{"custom_id": "b1", "method": "POST", "url": "/v1/completions"}', "body"),
    (b'{"custom_id": "b2", "method": "GET", "url": "/v1/completions", "body": {"prompt": "a"}}', "method"),
    (b'{"custom_id": "b3", "method": "POST", "url": "/v1/embeddings", "body": {"input": "a"}}', "url"),
    (b'{"custom_id": "b4", "method": "POST", "url": "/v1/completions", "body": 5}', "body"),
    (b'{"custom_id": "b5", "method": "POST", "url": "/v1/completions", "body": {"prompt": "a", "tmp": 1}}', "tmp"),
    (b'{"custom_id": 7, "method": "POST", "url": "/v1/completions", "body": {"prompt": "a"}}', "custom_id"),
]

NUMBERS = ("temperature", "top_p", "min_p")
INTEGERS = ("top_k", "max_tokens", "max_completion_tokens", "seed")
OUT_OF_RANGE = [("temperature", "-1"), ("temperature", "1e400"), ("top_p", "0"), ("top_p", "1.5"), ("min_p", "-0.1"),
                ("min_p", "1"), ("top_k", "-2"), ("max_tokens", "0"), ("max_tokens", "-5"),
                ("max_completion_tokens", "0"), ("seed", "99999999999999999999"), ("seed", "1.5"), ("top_k", "1.5"),
                ("max_tokens", "2.5"), ("n", "0"), ("n", "17"), ("n", '"1"'), ("stream", "true"), ("logprobs", "6"),
                ("logprobs", "true"), ("top_logprobs", "1"), ("logit_bias", '{"5": 101}'), ("logit_bias", '{"x": 1}'),
                ("logit_bias", '{"99999999": 1}'), ("logit_bias", "[]"),
                ("stop", '""'), ("stop", '["a", ""]'), ("stop", json.dumps(["a"] * 100)), ("stop", '["a", 5]'),
                ("stop", json.dumps("s" * 5000))]
WRONG = [(name, value) for name in NUMBERS + INTEGERS for value in ('"1"', "true", "[]", "{}")]
WRONG += [("stop", value) for value in ("1", "true", "{}", "[1]", "[[]]")] + OUT_OF_RANGE


def all_broken():
    for line, reason in BROKEN:
        yield line, reason
    for name, value in WRONG:
        reason = "JSON" if value in ("1e400", "99999999999999999999") else rf"(?i){name}|stop string"
        yield with_parameter(name, value), reason


class BadLines(Workspace):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        lines, cls.expected = [], {}  # line number -> (line, reason)
        for number, (line, reason) in enumerate(all_broken()):
            lines.append(json.dumps({"id": f"good-{number}", "prompt": "stone river", "max_tokens": 2}).encode())
            lines.append(line)
            cls.expected[len(lines)] = line, reason
        lines.append(b"")  # a blank line is none
        lines.append(b'{"id": "last", "prompt": "the end", "max_tokens": 2}\r')
        cls.good = len(cls.expected) + 1
        cls.source = cls.write_lines("broken.jsonl", lines)

    def test_one_record_per_bad_line(self):
        result = self.nightjar(*self.job("bad", self.source), code=1, timeout=280)
        errors = self.records("bad", "errors.jsonl")
        by_line = {}
        for record in errors:
            self.assertNotIn(record["error"]["line"], by_line, "two records for one line")
            by_line[record["error"]["line"]] = record
        self.assertEqual(sorted(by_line), sorted(self.expected))
        offsets = self.line_offsets()
        for number, (line, reason) in self.expected.items():
            with self.subTest(line=number, text=line[:60]):
                error = by_line[number]["error"]
                self.assertEqual(error["file"], "broken.jsonl")
                self.assertRegex(error["message"], reason)
                self.assertTrue(error["code"])
                self.assertTrue(offsets[number] <= error["byte"] <= offsets[number] + len(line), error["byte"])
        self.assertEqual(len(self.records("bad")), self.good)
        say(f"{len(errors)} bad and {self.good} good lines, one record each")
        self.assertLess(len(result.stderr), 20_000, "messages must not repeat every bad line")
        self.check_export()

    def line_offsets(self):
        offsets, at = {}, 0
        with open(self.source, "rb") as file:
            for number, line in enumerate(file, 1):
                offsets[number] = at
                at += len(line)
        return offsets

    def check_export(self):
        exported = [json.loads(line) for line in self.export("bad").splitlines()]
        self.assertEqual(len(exported), self.good + len(self.expected))
        ids = [record.get("id") if "custom_id" not in record else record["custom_id"] for record in exported]
        self.assertEqual(len(set(ids)), len(ids), "an id stands twice in the export")
        positions = [ids.index(f"good-{number}") for number in range(len(self.expected))]
        self.assertEqual(positions, list(range(0, 2 * len(self.expected), 2)), "input order")
        self.assertFalse([record for record in exported if "attempt" in record])

    def test_bad_lines_are_not_repeated_by_resume(self):
        source = self.write_lines("few.jsonl", [{"id": "a", "prompt": "x", "max_tokens": 1}, b"null", b"{"])
        for _ in range(2):
            self.nightjar(*self.job("again", source), code=1)
        self.assertEqual(len(self.records("again", "errors.jsonl")), 2)
        self.assertEqual(len(self.records("again")), 1)

    def test_strict_stops_at_once(self):
        source = self.write_lines("strict.jsonl", [{"id": "a", "prompt": "x"}, b"null", {"id": "b", "prompt": "y"}])
        result = self.nightjar(*self.job("strict", source, "--strict"), code=65)
        self.assertRegex(result.stderr, r"strict\.jsonl:2: ")
        self.assertEqual(read_json_lines(self.path("strict", "results.jsonl")), [])

    def test_all_bad(self):
        source = self.write_lines("all.jsonl", [b"null", b"{", b'{"id": "x"}'])
        result = self.nightjar(*self.job("all", source), code=65)
        self.assertRegex(result.stderr, r"all\.jsonl")

    def test_byte_order_mark_and_line_ends(self):
        source = self.write_lines("marks.jsonl", [b'\xef\xbb\xbf{"id": "a", "prompt": "x", "max_tokens": 1}\r', b"\r",
                                                  b'{"id": "b", "prompt": "x", "max_tokens": 1}'])
        self.nightjar(*self.job("marks", source))
        self.assertEqual([record["id"] for record in map(json.loads, self.export("marks").splitlines())], ["a", "b"])

    def test_missing_ids_name_file_and_line(self):
        source = self.write_lines("anonymous.jsonl", [{"prompt": "x", "max_tokens": 1}, b"null"])
        self.nightjar(*self.job("anonymous", source), code=1)
        ids = [json.loads(line)["id"] for line in self.export("anonymous").splitlines()]
        self.assertEqual(ids, ["anonymous.jsonl:1", "anonymous.jsonl:2"])


if __name__ == "__main__":
    main()
