#!/usr/bin/env python3
"""Input that cannot be read again in place: standard input, .jsonl.gz, archives. The same lines give the same bytes,
and a job goes on without its input once it has its own copy."""
import gzip
import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
import time
import zipfile

from support import Workspace, main, mixed_requests, record_id, say

MEMBERS = ("docs/a.jsonl", "docs/b.jsonl.gz")


def encode(requests):
    return b"".join(json.dumps(request).encode() + b"\n" for request in requests)


class Sources(Workspace):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.requests = mixed_requests(60, longest_words=60, longest_answer=20, seed=9)
        cls.text = encode(cls.requests)
        cls.source = cls.write_bytes("plain.jsonl", cls.text)
        cls.packed = cls.write_bytes("plain.jsonl.gz", gzip.compress(cls.text))
        half = len(cls.requests) // 2
        cls.members = {"docs/readme.txt": b"not read", MEMBERS[0]: encode(cls.requests[:half]),
                       MEMBERS[1]: gzip.compress(encode(cls.requests[half:]))}

    @classmethod
    def write_bytes(cls, name, content):
        with open(cls.path(name), "wb") as file:
            file.write(content)
        return cls.path(name)

    @classmethod
    def tar(cls, name, members, mode="w"):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode=mode) as archive:
            for member, content in members.items():
                info = tarfile.TarInfo(member)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
        return cls.write_bytes(name, buffer.getvalue())

    @classmethod
    def tar_zst(cls, name, members):
        plain = cls.tar(name + ".plain", members)
        subprocess.run(["zstd", "-q", "-f", plain, "-o", cls.path(name)], check=True)
        return cls.path(name)

    def setUp(self):
        if not hasattr(type(self), "baseline"):
            type(self).baseline = self.run_job("baseline", self.source)

    def words(self, name, source):
        return self.job(name, source, "--quiet", "--threads", 2)

    def run_job(self, name, source, **options):
        self.nightjar(*self.words(name, source), **options)
        return self.export(name)

    def spool(self, name):
        return os.listdir(self.path(name, "spool"))

    # The same bytes

    def test_same_bytes_from_every_source(self):
        archives = [self.tar("in.tar", self.members), self.tar("in.tar.gz", self.members, "w:gz"),
                    self.tar("in.tgz", self.members, "w:gz"), self.tar("in.tar.xz", self.members, "w:xz")]
        if shutil.which("zstd"):
            archives.append(self.tar_zst("in.tar.zst", self.members))
        else:
            say("no zstd program here: tar.zst is covered by test_unpack only")
        with zipfile.ZipFile(self.path("in.zip"), "w", zipfile.ZIP_DEFLATED) as file:
            for member, content in self.members.items():
                file.writestr(member, content)
        folder = self.path("folder")
        os.mkdir(folder)
        for number, (member, content) in enumerate(list(self.members.items())[1:]):
            self.write_bytes(os.path.join("folder", os.path.basename(member)), content)
        for source in [self.packed, *archives, self.path("in.zip"), folder]:
            with self.subTest(os.path.basename(source)):
                name = "same-" + os.path.basename(source)
                self.assert_same_export(self.run_job(name, source), self.baseline, name)
                self.assertEqual(sorted(self.spool(name)), ["blocks.1", "spool.bin"])
        self.assert_same_export(self.run_job("same-stdin", "-", input=self.text), self.baseline, "stdin")

    def test_plain_files_are_not_copied(self):
        self.assertFalse(os.path.exists(self.path("baseline", "spool")))

    def test_ids_of_lines_without_one(self):
        line = b'{"prompt":"river","max_tokens":1}\n'
        archive = self.tar("labels.tar", {"./x//a.jsonl": line * 2, "../up\x01.jsonl": line, "/etc/c.jsonl.gz":
                                          gzip.compress(line)})
        packed = self.write_bytes("labels.jsonl.gz", gzip.compress(b"\n" + line))
        expected = {archive: ["labels.tar/x/a.jsonl:1", "labels.tar/x/a.jsonl:2", "labels.tar/%2E%2E/up%01.jsonl:1",
                              "labels.tar/etc/c.jsonl.gz:1"], packed: ["labels.jsonl.gz:2"], "-": ["-:1"]}
        for number, (source, ids) in enumerate(expected.items()):
            out = self.run_job(f"ids-{number}", source, input=line)
            self.assertEqual([record_id(json.loads(record)) for record in out.splitlines()], ids)

    def test_bad_lines_name_the_member(self):
        self.tar("bad.tar", {"m.jsonl": b'{"id":"a","prompt":"river","max_tokens":1}\n{"id":"b"}\n'})
        self.nightjar(*self.words("bad", self.path("bad.tar")), code=1)
        place = self.records("bad", "errors.jsonl")[0]["error"]
        self.assertEqual((place["file"], place["line"], place["byte"]), ("bad.tar/m.jsonl", 2, 43))

    # Going on without the input

    def stop_in_the_middle(self, name, source, text=None):
        process = self.start(*self.words(name, source), "--token-budget", 4, stdin=subprocess.PIPE)
        if text is not None:
            process.stdin.write(text)
        process.stdin.close()
        process.stdin = None
        self.wait_for_output(process, name)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 75)

    def test_resume_without_the_original(self):
        for source in (self.write_bytes("gone.jsonl.gz", gzip.compress(self.text)), self.tar("gone.tar", self.members)):
            for command in ("resume", "run"):
                with self.subTest(source=os.path.basename(source), command=command):
                    name = f"{command}-{os.path.basename(source)}"
                    self.stop_in_the_middle(name, source)
                    os.rename(source, source + ".away")
                    self.nightjar(*(("resume", self.path(name), "--quiet") if command == "resume"
                                    else self.words(name, source)))
                    self.assert_same_export(self.export(name), self.baseline, name)
                    os.rename(source + ".away", source)

    def test_resume_without_standard_input(self):
        for number, words in enumerate((["resume"], ["run"])):
            name = f"stdin-{number}"
            self.stop_in_the_middle(name, "-", self.text)
            self.nightjar(*(("resume", self.path(name), "--quiet") if words == ["resume"] else self.words(name, "-")))
            self.assert_same_export(self.export(name), self.baseline, name)

    def test_same_command_with_the_same_input_again(self):
        self.run_job("twice", "-", input=self.text)
        self.assert_same_export(self.run_job("twice", "-", input=self.text), self.baseline, "twice")
        self.assertEqual(len(self.records("twice")), len(self.requests), "a finished request was computed again")
        self.assertEqual(sorted(self.spool("twice")), ["blocks.2", "spool.bin"])

    def test_lines_added_and_removed(self):
        more = encode([{"id": "added", "prompt": "stone", "max_tokens": 2}])
        self.run_job("added", "-", input=self.text)
        out = self.nightjar(*self.job("added", "-", "--threads", 2), input=self.text + more)
        self.assertIn("1 requests are new", out.stderr)
        refused = self.nightjar(*self.words("added", "-"), input=self.text, code=65)
        self.assertIn("1 removed", refused.stderr)
        self.nightjar("resume", self.path("added"), "--quiet")  # the copy with all lines is still there
        self.assertEqual(len(self.export("added").splitlines()), len(self.requests) + 1)

    def test_changed_archive_is_read_anew(self):
        source = self.write_bytes("grows.jsonl.gz", gzip.compress(self.text))
        self.run_job("grows", source)
        self.write_bytes("grows.jsonl.gz", gzip.compress(self.text + b'{"id":"added","prompt":"a","max_tokens":1}\n'))
        self.assertEqual(len(self.run_job("grows", source).splitlines()), len(self.requests) + 1)

    def test_files_of_several_kinds_together(self):
        third = len(self.requests) // 3
        plain = self.write_bytes("mixed.jsonl", encode(self.requests[:third]))
        packed = self.write_bytes("mixed.jsonl.gz", gzip.compress(encode(self.requests[third:2 * third])))
        words = [*self.job("mixed", plain, "--quiet"), packed, "-"]
        self.nightjar(*words, input=encode(self.requests[2 * third:]))
        self.assert_same_export(self.export("mixed"), self.baseline, "mixed")
        os.remove(packed)  # copied from the old copy into the new one
        self.nightjar(*words, input=encode(self.requests[2 * third:]))
        self.assert_same_export(self.export("mixed"), self.baseline, "mixed")
        self.assertEqual(len(self.records("mixed")), len(self.requests))

    def kill_before_the_end_of_input(self, name):
        process = self.start(*self.words(name, "-"), stdin=subprocess.PIPE)
        process.stdin.write(self.text[:1000])
        process.stdin.flush()
        end = time.monotonic() + 60
        while not os.path.exists(self.path(name, "spool", "blocks.1")) and time.monotonic() < end:
            time.sleep(0.01)
        process.kill()
        process.communicate(timeout=60)

    def test_standard_input_that_was_cut_short(self):
        self.kill_before_the_end_of_input("cut")
        refused = self.nightjar("resume", self.path("cut"), code=66)
        self.assertIn("run the first command again with the same input", refused.stderr)
        refused = self.nightjar(*self.words("cut", "-"), code=66)
        self.assertIn("give the same input again", refused.stderr)
        self.nightjar(*self.words("cut", "-"), input=self.text)
        self.assert_same_export(self.export("cut"), self.baseline, "cut")
        self.assertEqual(sorted(self.spool("cut")), ["blocks.1", "spool.bin"])

    def test_signal_while_waiting_for_standard_input(self):
        process = self.start(*self.words("waiting", "-"), stdin=subprocess.PIPE)
        process.stdin.write(self.text[:1000])
        process.stdin.flush()
        time.sleep(1)
        process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        self.assertEqual(process.wait(timeout=30), 75)  # its standard input is still open
        self.assertLess(time.monotonic() - began, 5)
        self.assertIn(b"the same command with the same standard input", process.stderr.read())
        self.assertNotIn("spool.bin", self.spool("waiting"))

    def test_refused_names(self):
        self.nightjar(*self.words("refused", "-"), "-", code=64, input=b"")
        self.write_bytes("a.jsonl.bz2", b"BZh")
        refused = self.nightjar(*self.words("refused", self.path("a.jsonl.bz2")), code=64)
        self.assertIn("standard input", refused.stderr)
        empty = self.tar("empty.tar", {"readme.txt": b"no"})
        refused = self.nightjar(*self.words("refused", empty), code=66)
        self.assertIn("holds no .jsonl", refused.stderr)

    # Damage

    def check_damaged(self, name, content, *expected):
        source = self.write_bytes(name, content)
        refused = self.nightjar(*self.words("damaged-" + name, source), code=65)
        for text in (name, *expected):
            self.assertIn(text, refused.stderr)
        self.assertEqual(refused.stderr.count("error:"), 1, refused.stderr)

    def test_damaged_input(self):
        packed = gzip.compress(self.text)
        middle = len(packed) // 2
        self.check_damaged("short.jsonl.gz", packed[:-20], "gzip data is damaged", "ends in the middle")
        self.check_damaged("crc.jsonl.gz", packed[:-8] + bytes(4) + packed[-4:], "gzip data is damaged")
        self.check_damaged("flip.jsonl.gz", packed[:middle] + bytes([packed[middle] ^ 255]) + packed[middle + 1:],
                           "gzip data is damaged")
        self.check_damaged("text.jsonl.gz", self.text, "gzip data is damaged at its byte")
        self.check_damaged("text.tar", self.text, "the archive is damaged or of an unknown kind")
        with open(self.tar("whole.tar.gz", self.members, "w:gz"), "rb") as file:
            self.check_damaged("cut.tar.gz", file.read()[:-30], "gzip data is damaged")
        with open(self.tar("whole.tar", self.members), "rb") as file:
            self.check_damaged("cut.tar", file.read()[:2000], "docs/a.jsonl", "damaged")
        inner = dict(self.members, **{MEMBERS[1]: self.members[MEMBERS[1]][:-20]})
        with open(self.tar("inner.tar", inner), "rb") as file:
            self.check_damaged("inner2.tar", file.read(), "inner2.tar/docs/b.jsonl.gz", "gzip data is damaged")

    def test_bomb(self):
        packed = self.write_bytes("bomb.jsonl.gz", gzip.compress(b"\n" * (128 << 20)))
        refused = self.nightjar(*self.words("bomb", packed), code=65)
        self.assertIn("times its size", refused.stderr)
        self.assertIn("bomb.jsonl.gz", refused.stderr)

    def test_damaged_copy(self):
        for name, place in (("blocks.1", 20), ("spool.bin", 80)):
            job = "copy-" + name
            self.stop_in_the_middle(job, "-", self.text)
            with open(self.path(job, "spool", name), "r+b") as file:
                file.seek(place)
                byte = file.read(1)
                file.seek(place)
                file.write(bytes([byte[0] ^ 1]))
            refused = self.nightjar("resume", self.path(job), code=65)
            self.assertIn("copy of its input is damaged", refused.stderr)
            self.assertIn(name, refused.stderr)
            shutil.rmtree(self.path(job, "spool"))  # as the message says
            self.nightjar(*self.words(job, "-"), input=self.text)
            self.assert_same_export(self.export(job), self.baseline, job)


if __name__ == "__main__":
    main()
