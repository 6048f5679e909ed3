#!/usr/bin/env python3
"""The ring of layers without computing beside fio: the same file, pieces of 8 MiB, four under way,
both with registered buffers where they can be had, in turns.

usage: compare_fio.py BENCH_LAYER_RING FILE [--fio PATH] [--rounds N] [--seconds N]

FILE is best a pack of a gigabyte or more. Medians of the rounds, with the least and the most."""
import argparse
import json
import os

from programs import print_comparison, run

PIECE, DEPTH = "8m", 4
GIGA = 1e9


def measure_ring(options):
    kind, rate = run([options.bench, options.file, str(options.seconds)]).split()
    return kind, float(rate) / GIGA


def measure_fio(options):
    report = json.loads(run([options.fio, "--name=read", "--filename=" + options.file, "--readonly", "--rw=read",
                             "--direct=1", "--bs=" + PIECE, "--ioengine=io_uring", "--iodepth=%d" % DEPTH,
                             "--fixedbufs=1", "--time_based", "--runtime=%d" % options.seconds, "--output-format=json"]))
    return report["jobs"][0]["read"]["bw_bytes"] / GIGA


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", metavar="BENCH_LAYER_RING")
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--fio", default="fio")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=5)
    options = parser.parse_args()
    ring, fio = [], []
    for _ in range(options.rounds):
        kind, rate = measure_ring(options)
        ring.append(rate)
        fio.append(measure_fio(options))
    print("%s, pieces of 8 MiB, %d under way, medians of %d rounds; load %.1f %.1f %.1f" % (
        os.path.basename(options.file), DEPTH, options.rounds, *os.getloadavg()))
    print("      %-28s %-28s ratio" % ("ring (%s)" % kind, "fio"))
    print_comparison("GB/s", ring, fio, "%9.3f (%.3f to %.3f)")


if __name__ == "__main__":
    main()
