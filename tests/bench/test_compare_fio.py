#!/usr/bin/env python3
"""compare_fio.py on programs that print what the real ones print."""
import os
import subprocess
import sys
import unittest

from fake_programs import FOLDER, FakePrograms


class CompareFio(FakePrograms):
    def compare_fio(self, bench_body, fio_body):
        bench, fio = self.program("bench", bench_body), self.program("fio", fio_body)
        return subprocess.run([sys.executable, "-B", os.path.join(FOLDER, "compare_fio.py"), bench, "a.pack", "--fio",
                               fio, "--rounds", "3", "--seconds", "1"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def test_medians_and_ratio(self):
        counter = os.path.join(self.folder, "count")
        bench = "echo x >> %s; n=$(wc -l < %s); echo io_uring ${n}000000000" % (counter, counter)
        result = self.compare_fio(bench, """echo '{"jobs": [{"read": {"bw_bytes": 4000000000}}]}'""")
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = result.stdout.splitlines()
        self.assertIn("a.pack", lines[0])
        self.assertIn("io_uring", lines[1])
        self.assertEqual(lines[2].split(), "GB/s 2.000 (1.000 to 3.000) 4.000 (4.000 to 4.000) 0.50".split())

    def test_fio_reads_as_the_ring_does(self):
        log = os.path.join(self.folder, "words")
        fio = """echo "$@" >> %s; echo '{"jobs": [{"read": {"bw_bytes": 1}}]}'""" % log
        self.compare_fio("echo threads 1000", fio)
        with open(log, encoding="utf-8") as file:
            words = file.readline().split()
        for word in ("--filename=a.pack", "--readonly", "--direct=1", "--bs=8m", "--iodepth=4", "--fixedbufs=1",
                     "--rw=read"):
            self.assertIn(word, words)

    def test_a_failing_program_is_named(self):
        result = self.compare_fio("echo threads 1000", "echo no engine >&2; exit 1")
        self.assertEqual(result.returncode, 1)
        self.assertIn("no engine", result.stderr)


if __name__ == "__main__":
    unittest.main()
