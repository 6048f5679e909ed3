"""What the comparisons with other programs share."""
import argparse
import os
import statistics
import subprocess
import sys


def parse_options(description, add_options):
    """The options of every comparison and those that add_options(parser) adds."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", metavar="LLAMA_BUILD")
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--nightjar", default="nightjar")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    add_options(parser)
    return parser.parse_args()


def run(command):
    """What the program prints on standard output; ends with its messages if it fails."""
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if result.returncode != 0:
        sys.exit("%s ended with %d:\n%s" % (" ".join(command), result.returncode,
                                            result.stderr.decode("utf-8", "replace")[-2000:]))
    return result.stdout.decode("utf-8", "replace")


def print_header(options, version):
    print("%s, %d threads, medians of %d rounds; llama.cpp build %s; load %.1f %.1f %.1f" % (
        os.path.basename(options.model), options.threads, options.rounds, version, *os.getloadavg()))


def print_comparison(label, ours, theirs, form="%9.1f (%.1f to %.1f)"):
    """One line of a table: medians, the least and the most, and the ratio of the medians."""
    ours_text, theirs_text = (form % (statistics.median(rates), min(rates), max(rates)) for rates in (ours, theirs))
    print("%s  %-28s %-28s %5.2f" % (label, ours_text, theirs_text,
                                     statistics.median(ours) / statistics.median(theirs)))
