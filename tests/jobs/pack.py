#!/usr/bin/env python3
"""pack: what it lists, removes and builds."""
import json
import os

from support import Workspace, main


class Pack(Workspace):
    def packs(self):
        return json.loads(self.nightjar("pack", "--list", "--json").stdout)["packs"]

    def setUp(self):
        for pack in self.packs():
            self.nightjar("pack", "--remove", pack["digest"])
        old = os.stat(self.model).st_mtime - 60  # digests of files that may still change are not remembered
        os.utime(self.model, (old, old))

    def build(self):
        return self.nightjar("pack", "-m", self.model).stdout.decode().strip()

    def test_build_list_remove(self):
        self.assertEqual(self.packs(), [])
        path = self.build()
        self.assertTrue(path.startswith(self.path(".cache", "nightjar", "packs")), path)
        self.assertEqual(self.build(), path)
        (pack,) = self.packs()
        self.assertEqual((pack["bytes"], pack["complete"], pack["model"]), (os.stat(path).st_size, True, self.model))
        self.assertIn(pack["digest"], path)
        text = self.nightjar("pack", "--list").stdout.decode()
        self.assertRegex(text, rf"{pack['digest'][:8]} .*{self.model}")
        self.assertIn("together", text)
        result = self.nightjar("pack", "--remove", pack["digest"][:6])
        self.assertIn("removed", result.stderr)
        self.assertFalse(os.path.exists(path))
        self.assertEqual(self.packs(), [])

    def test_a_job_uses_the_pack_and_builds_a_removed_one_again(self):
        path = self.build()
        built = os.stat(path).st_ino
        prompts = self.write_lines("prompts.jsonl", [{"id": "a", "prompt": "river stone", "max_tokens": 2}])
        self.nightjar("run", "-m", self.model, "-o", self.path("job"), prompts)
        self.assertEqual(os.stat(path).st_ino, built)
        self.nightjar("pack", "--remove", os.path.basename(path)[:32])
        self.nightjar("run", "-m", self.model, "-o", self.path("job2"), prompts)
        self.assertTrue(os.path.exists(path))

    def test_the_model_of_a_pack_is_named_only_while_it_is_the_same(self):
        self.build()
        os.utime(self.model)
        (pack,) = self.packs()
        self.assertIsNone(pack["model"])
        self.assertIn("gone, or has changed", self.nightjar("pack", "--list").stdout.decode())

    def test_leftovers_and_strangers(self):
        path = self.build()
        folder = os.path.dirname(path)
        for name in ("0" * 32 + "-v1.pack.tmp", "notes.txt", "0" * 31 + "-v1.pack", "0" * 32 + "-v1.packed"):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(b"x" * 100)
        leftover = [pack for pack in self.packs() if not pack["complete"]]
        self.assertEqual([(pack["digest"], pack["bytes"]) for pack in leftover], [("0" * 32, 100)])
        self.assertEqual(len(self.packs()), 2)
        self.nightjar("pack", "--remove", "00")
        self.assertEqual(len(self.packs()), 1)
        self.assertTrue(os.path.exists(os.path.join(folder, "notes.txt")))

    def test_refusals(self):
        self.build()
        for name in ("1" * 32, "2" + "1" * 31, "2" * 32):
            open(self.path(".cache", "nightjar", "packs", name + "-v1.pack"), "wb").close()
        self.assertIn("no pack", self.nightjar("pack", "--remove", "zz", code=66).stderr)
        self.assertIn("several", self.nightjar("pack", "--remove", "2", code=64).stderr)
        self.assertIn("name the packs", self.nightjar("pack", "--remove", code=64).stderr)
        self.assertIn("one of", self.nightjar("pack", "--list", "-m", self.model, code=64).stderr)
        self.assertIn("no model", self.nightjar("pack", code=64).stderr)
        self.assertIn("no such model", self.nightjar("pack", "-m", self.path("none.gguf"), code=66).stderr)
        before = len(self.packs())
        # The others are removed all the same.
        self.nightjar("pack", "--remove", "zz", "1" * 32, code=66)
        self.assertEqual(len(self.packs()), before - 1)

    def test_a_pack_that_is_being_built_stays(self):
        path = self.build()
        process = self.start("pack", "-m", self.model)
        process.wait()
        lock = os.path.join(os.path.dirname(path), os.path.basename(path)[:32] + ".lock")
        with open(lock, "r+") as file:
            hold(file)
            result = self.nightjar("pack", "--remove", os.path.basename(path)[:32], code=73)
        self.assertIn("is building this pack", result.stderr)
        self.assertTrue(os.path.exists(path))


def hold(file):
    """Takes the builder's lock, which belongs to the open file."""
    import fcntl
    import struct
    request = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    fcntl.fcntl(file, getattr(fcntl, "F_OFD_SETLK", 37), request)


if __name__ == "__main__":
    main()
