#!/usr/bin/env python3
"""--max-memory: the process stays below it, answers do not depend on it, and what does not fit is told at once."""
import gzip
import json
import os
import re
import tempfile

from support import Workspace, main, mixed_requests, say

MIB = 1 << 20
OVER_THE_CAP = 64 * MIB  # what a control group allows beside a cap: the page cache needs some room
ROOT = "/sys/fs/cgroup"


def own_memory_group():
    """The directory of this process's memory control group and the name of its limit file (version 1 or 2)."""
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        groups = [line.rstrip("\n").split(":", 2) for line in file]
    for _, controllers, path in groups:
        if "memory" in controllers.split(","):
            return os.path.join(ROOT, "memory", path.lstrip("/")), "memory.limit_in_bytes"
    for _, controllers, path in groups:
        if controllers == "":
            return os.path.join(ROOT, path.lstrip("/")), "memory.max"
    raise OSError("no control groups")


class MemoryGroup:
    """A memory control group with a limit, below the test's own."""

    def __init__(self, limit_bytes):
        parent, limit_file = own_memory_group()
        self.path = tempfile.mkdtemp(prefix="nightjar-test-", dir=parent)
        try:
            with open(os.path.join(self.path, limit_file), "w", encoding="ascii") as file:
                file.write(str(limit_bytes))
        except OSError:
            self.remove()
            raise

    def enter(self):
        """In the child, before it becomes nightjar."""
        with open(os.path.join(self.path, "cgroup.procs"), "w", encoding="ascii") as file:
            file.write(str(os.getpid()))

    def remove(self):
        os.rmdir(self.path)


def groups_can_be_made():
    try:
        MemoryGroup(OVER_THE_CAP).remove()
    except OSError as error:
        return str(error)
    return None


class Caps(Workspace):
    # Weights of 32 MiB in 16 layers, so that they count beside the program; little to compute.
    model_options = ("--layers", "16", "--width", "512", "--heads", "8", "--kv-heads", "2", "--feed-forward", "2048",
                     "--type", "q4_0")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        requests = mixed_requests(10, longest_words=25, longest_answer=8, seed=5)
        cls.source = cls.write_lines("in.jsonl", requests)
        cls.weights = os.path.getsize(cls.model)
        cls.no_groups = groups_can_be_made()
        if cls.no_groups is not None:
            say(f"SKIPPED: no memory control group can be made ({cls.no_groups}): only the peak is looked at")

    def in_group(self, limit_bytes, *words, **keywords):
        if self.no_groups is not None:
            return self.nightjar(*words, **keywords)
        group = MemoryGroup(limit_bytes)
        try:
            return self.nightjar(*words, preexec_fn=group.enter, **keywords)
        finally:
            group.remove()

    def capped(self, name, cap, *options, source=None, code=0):
        """A run under a cap in MiB, which must hold; its stop line."""
        words = self.job(name, source or self.source, "--max-memory", f"cpu={cap}MiB", "--threads", 2, *options)
        messages = self.in_group(cap * MIB + OVER_THE_CAP, *words, code=code).stderr
        run = self.check_peak(name, cap)
        told = re.search(r"layers +(\d+) of 16 stay on disk: every sweep reads \d+ MiB", messages)
        self.assertEqual(int(told.group(1)) if told else 0, run["disk_layers"])
        return run

    def check_peak(self, name, cap):
        run = self.runs(name)[-1]
        self.assertEqual(run["max_memory_bytes"], cap * MIB)
        self.assertGreater(run["peak_memory_bytes"], 0)
        self.assertLessEqual(run["peak_memory_bytes"], cap * MIB, f"{name}: {cap} MiB")
        return run

    def refusal(self, name, cap, *options, source=None):
        """A run under a cap that is too small: the smallest one, in MiB, as the message names it."""
        words = self.job(name, source or self.source, "--max-memory", cap, "--threads", 2, *options)
        error = self.nightjar(*words, code=78).stderr
        return int(re.search(r"--max-memory cpu=(\d+)MiB", error).group(1))

    def least(self):
        return self.refusal("least", "1MiB")

    def test_the_smallest_is_told_before_the_pack_is_built_and_works(self):
        cache = self.path("cache")
        least = self.refusal("small", "1MiB", "--cache-dir", cache)
        self.assertEqual(self.refusal("small", f"{least - 1}MiB", "--cache-dir", cache), least)
        self.assertFalse(os.path.exists(os.path.join(cache, "packs")))
        self.capped("small", least, "--cache-dir", cache)  # the pack is built under the cap, too
        self.assertTrue(os.listdir(os.path.join(cache, "packs")))
        with open(self.path("small", "status.json"), encoding="utf-8") as file:
            self.assertGreater(json.load(file)["peak_memory_bytes"], 0)

    def test_answers_are_the_same_under_every_cap(self):
        self.nightjar(*self.job("free", self.source, "--threads", 2))
        expected = self.export("free")
        least, before = self.least(), None
        self.assertLess(least * MIB, self.weights)
        for more in (0, 2, 6, 12, 20, 200):
            with self.subTest(more=more):
                name = f"cap{more}"
                run = self.capped(name, least + more)
                self.assert_same_export(self.export(name), expected, name)
                say(f"cap {least + more} MiB: peak {run['peak_memory_bytes'] / MIB:.1f} MiB, {run['kv_blocks']} blocks, "
                    f"{run['disk_layers']} layers on disk")
                if before is None:
                    self.assertEqual(run["disk_layers"], 16)
                else:
                    self.assertLessEqual(run["disk_layers"], before["disk_layers"])
                    if run["disk_layers"] == before["disk_layers"]:
                        self.assertGreaterEqual(run["kv_blocks"], before["kv_blocks"])
                before = run
        self.assertEqual(before["disk_layers"], 0)
        self.assertEqual(before["kv_blocks"], self.runs("free")[-1]["kv_blocks"])

    def test_a_job_goes_on_under_another_cap(self):
        self.nightjar(*self.job("whole", self.source, "--threads", 2))
        least = self.least()
        self.capped("parts", least + 30, "--first", 4, code=75)
        error = self.nightjar("resume", self.path("parts"), "--max-memory", "1MiB", code=78).stderr
        self.assertIn("--max-memory cpu=", error)
        self.nightjar("resume", self.path("parts"), "--max-memory", f"cpu={least + 1}MiB", "--first", 8, code=75)
        self.check_peak("parts", least + 1)
        self.nightjar("resume", self.path("parts"))  # with the cap of the last run
        self.check_peak("parts", least + 1)
        self.assert_same_export(self.export("parts"), self.export("whole"), "another cap")

    def test_a_spool_counts(self):
        packed = self.path("in.jsonl.gz")
        with open(self.source, "rb") as plain, gzip.open(packed, "wb") as file:
            file.write(plain.read())
        least = self.refusal("packed", "1MiB", source=packed)
        self.capped("packed", least, source=packed)

    def test_plan_tells_what_run_does(self):
        least = self.least()
        for cap in (least + 3, least + 100):
            words = ["plan", "-m", self.model, "--threads", 2, "--max-memory", f"{cap}MiB", self.source]
            report = json.loads(self.nightjar(*words, "--json", "--quiet").stdout)
            memory, layers = report["memory"], report["layers"]
            run = self.capped(f"planned{cap}", cap)
            self.assertEqual((memory["max_memory_bytes"], memory["limit_bytes"]), (cap * MIB, cap * MIB))
            self.assertEqual(memory["least_limit_bytes"], least * MIB)
            self.assertEqual((memory["kv_blocks"], layers["on_disk"]), (run["kv_blocks"], run["disk_layers"]))
            self.assertEqual(layers["all"], 16)
            self.assertEqual(layers["sweep_read_bytes"] > 0, layers["on_disk"] > 0)
            text = self.nightjar(*words, "--quiet").stdout.decode()
            self.assertRegex(text, rf"memory .* that --max-memory allows; --max-memory cpu={least}MiB")
        report = json.loads(self.nightjar(*words[:6], "1MiB", self.source, "--json", "--quiet", code=78).stdout)
        self.assertIn(f"--max-memory cpu={least}MiB", report["misfit"])

    def test_sizes_that_are_none(self):
        for value in ("cpu=", "0", "cpu=-1GiB", "gpu=7GiB", "lots"):
            error = self.nightjar(*self.job("bad", self.source, "--max-memory", value), code=64).stderr
            self.assertIn("cpu=SIZE", error)
        self.nightjar("status", self.path("bad"), "--max-memory", "1GiB", code=64)


if __name__ == "__main__":
    main()
