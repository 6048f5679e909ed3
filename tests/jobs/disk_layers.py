#!/usr/bin/env python3
"""A job with layers on disk: kills, a pack that goes away or breaks while the job runs, and ways of reading that a
machine does not have."""
import os
import random
import re
import shutil
import signal
import tempfile
import time

from support import Workspace, main, mixed_requests, read_faults, say

LAYERS = 16
REQUESTS, KILLS = 24, 5
READ_ERROR_AT = 20 * LAYERS  # a layer is one read here: some twenty sweeps after the start
OPTIONS = ("--threads", 2, "--token-budget", 16)


class DiskLayers(Workspace):
    # 32 MiB of weights, so that a cap leaves layers on disk.
    model_options = ("--layers", str(LAYERS), "--width", "512", "--heads", "8", "--kv-heads", "2", "--feed-forward", "2048",
                     "--type", "q4_0")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.source = cls.write_lines("in.jsonl", mixed_requests(REQUESTS, longest_words=25, longest_answer=8, seed=7))

    def setUp(self):
        if hasattr(type(self), "expected"):
            return
        self.nightjar(*self.job("free", self.source, *OPTIONS))
        error = self.nightjar(*self.capped("least", "1MiB"), code=78).stderr
        type(self).cap = re.search(r"--max-memory (cpu=\d+MiB)", error).group(1)
        type(self).expected = self.export("free")
        type(self).packs = os.path.join(self.root, ".cache", "nightjar", "packs")

    def capped(self, name, cap=None, *options):
        return self.job(name, self.source, *OPTIONS, "--max-memory", cap or self.cap, *options)

    def finish_and_compare(self, name, *words):
        self.nightjar(*(words or self.capped(name)))
        self.assert_same_export(self.export(name), self.expected, name)
        self.assertEqual(self.record_count(name), REQUESTS, "a finished request was computed again")

    def start_running(self, name, *options):
        """A run under the cap of which some records are there."""
        process = self.start(*self.capped(name, None, *options))
        self.assertTrue(self.wait_for_records(process, name, 3))
        self.assertIsNone(process.poll())
        return process

    def pack(self):
        (name,) = [name for name in os.listdir(self.packs) if name.endswith(".pack")]
        return os.path.join(self.packs, name)

    def test_killed_again_and_again(self):
        generator = random.Random(5)
        for number in range(KILLS):
            process = self.start(*self.capped("killed"))
            self.wait_for_records(process, "killed", (number + 1) * REQUESTS // (KILLS + 3))
            time.sleep(generator.uniform(0, 0.05))
            process.send_signal(signal.SIGTERM if number % 2 else signal.SIGKILL)
            process.wait(timeout=30)
            self.assertIn(process.returncode, (75, -signal.SIGKILL), f"the job ended before kill {number + 1}")
        self.finish_and_compare("killed")
        self.assertEqual(self.runs("killed")[-1]["disk_layers"], LAYERS)

    def test_a_pack_deleted_under_the_job_does_no_harm(self):
        process = self.start_running("deleted")
        os.unlink(self.pack())
        self.assertEqual(process.wait(timeout=120), 0)
        self.finish_and_compare("deleted")

    def test_a_pack_cut_short_under_the_job(self):
        process = self.start_running("cut")
        path = self.pack()
        os.truncate(path, 4096)
        _, messages = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 65, messages.decode())
        self.assertIn(path, messages.decode())
        self.assertIn("run the same command again", messages.decode())
        self.assertLess(self.record_count("cut"), REQUESTS)
        self.finish_and_compare("cut")  # builds the pack anew

    def test_a_read_error(self):
        """Through pread, which is how layers are read where there is no io_uring."""
        for name, ways in (("broken", {"no_uring": True}), ("broken-buffered", {"no_direct": True})):
            with self.subTest(name):
                broken = read_faults(self.packs, READ_ERROR_AT, **ways)
                error = self.nightjar(*self.capped(name), code=74, faults=broken).stderr
                self.assertIn(self.pack(), error)
                self.assertIn("Input/output error", error)
                self.assertIn("run the same command again", error)
                self.assertIn(self.record_count(name), range(1, REQUESTS))
                self.finish_and_compare(name, "resume", self.path(name))

    def test_without_io_uring_and_without_direct_io(self):
        for name, said, ways in (("plain", 0, {"no_uring": True}), ("buffered", 1, {"no_direct": True})):
            with self.subTest(name):
                messages = self.nightjar(*self.capped(name), faults=read_faults(self.packs, **ways)).stderr
                self.assertEqual(messages.count("has no direct I/O"), said, messages)
                self.assertEqual(self.runs(name)[-1]["disk_layers"], LAYERS)
                self.assert_same_export(self.export(name), self.expected, name)

    def test_a_layer_damaged_on_disk(self):
        path = self.pack()
        with open(path, "r+b") as file:
            file.seek(os.path.getsize(path) // 2)
            middle = file.read(64)
            file.seek(os.path.getsize(path) // 2)
            file.write(bytes(255 - byte for byte in middle))
        error = self.nightjar(*self.capped("damaged"), code=65).stderr
        self.assertRegex(error, r"tensor blk\.\d+\.\w+\.weight of the pack is damaged")
        self.assertIn("delete the pack", error)
        os.unlink(path)
        self.finish_and_compare("damaged")

    def test_a_pack_in_memory(self):
        """A file system that may have no direct I/O: it works, and a line says so if that is the case."""
        if not os.path.isdir("/dev/shm") or not os.access("/dev/shm", os.W_OK):
            self.skipTest("no /dev/shm to write to")
        cache = tempfile.mkdtemp(prefix="nightjar-test-", dir="/dev/shm")
        self.addCleanup(shutil.rmtree, cache)
        messages = self.nightjar(*self.capped("shm", None, "--cache-dir", cache)).stderr
        say(f"tmpfs: {[line for line in messages.splitlines() if 'direct I/O' in line] or 'direct I/O'}")
        self.finish_and_compare("shm", *self.capped("shm", None, "--cache-dir", cache))
        self.assertEqual(self.runs("shm")[0]["disk_layers"], LAYERS)


if __name__ == "__main__":
    main()
