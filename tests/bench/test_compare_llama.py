#!/usr/bin/env python3
"""compare_llama.py on programs that print what the real ones print: its numbers are medians and their ratios."""
import os
import unittest

from fake_programs import FakePrograms

NIGHTJAR = """{"rows": [
 {"kind": "prefill", "sequences": 1, "prompt_tokens": 512, "fits": true, "tokens_per_second": 300.0},
 {"kind": "prefill", "sequences": 8, "prompt_tokens": 64, "fits": true, "tokens_per_second": 999.0},
 {"kind": "decode", "sequences": 32, "context": 200, "fits": true, "tokens_per_second": %s},
 {"kind": "decode", "sequences": 64, "context": 200, "fits": false}]}"""
LLAMA_BENCH = """[{"build_number": 7, "build_commit": "abc", "avg_ts": 100.0},
 {"build_number": 7, "build_commit": "abc", "avg_ts": 150.0}]"""
LLAMA_BATCHED = """main: n_kv_max = 1
{"pp": 200, "tg": 32, "pl": 32, "speed_pp": 1.0, "speed_tg": 50.0}
{"pp": 200, "tg": 32, "pl": 64, "speed_pp": 1.0, "speed_tg": 60.0}"""


class CompareLlama(FakePrograms):
    def compare_rates(self, nightjar_body, rounds):
        nightjar = self.program("nightjar", nightjar_body)
        self.program("bin/llama-bench", "cat <<'END'\n%s\nEND" % LLAMA_BENCH)
        self.program("bin/llama-batched-bench", "cat <<'END'\n%s\nEND" % LLAMA_BATCHED)
        return self.compare("compare_llama.py", nightjar, rounds)

    def test_medians_and_ratios(self):
        counter = os.path.join(self.folder, "count")
        body = "echo x >> %s; n=$(wc -l < %s)\nrate=$((n * n * 25))\ncat <<END\n%s\nEND" % (
            counter, counter, NIGHTJAR % "$rate")
        result = self.compare_rates(body, 3)
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = result.stdout.splitlines()
        self.assertIn("m.gguf, 2 threads, medians of 3 rounds; llama.cpp build 7 (abc)", lines[0])
        self.assertEqual(lines[2].split(), "prefill 1 300.0 (300.0 to 300.0) 150.0 (150.0 to 150.0) 2.00".split())
        self.assertEqual(lines[3].split(), "decode 32 100.0 (25.0 to 225.0) 50.0 (50.0 to 50.0) 2.00".split())
        self.assertEqual(len(lines), 4)  # what one of them did not measure has no ratio

    def test_a_failing_program_is_named(self):
        result = self.compare_rates("echo no such model >&2; exit 66", 1)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("ended with 66", result.stderr)
        self.assertIn("no such model", result.stderr)


if __name__ == "__main__":
    unittest.main()
