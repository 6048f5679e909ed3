#!/usr/bin/env python3
"""doctor: what a model's file holds and whether it runs; what this machine is and can do."""
import json
import os
import re
import struct

from support import Workspace, has_instructions, main, say


class Model(Workspace):
    model_options = ("--layers", "3", "--width", "64", "--heads", "4", "--kv-heads", "2", "--context", "1024",
                     "--type", "q4_1", "--embedding-type", "q8_0", "--tied")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with open(cls.model, "rb") as file:
            cls.good = file.read()

    def doctor(self, path, *options, code=0):
        return json.loads(self.nightjar("doctor", "-m", path, "--json", *options, code=code).stdout)

    def changed(self, name, *changes):
        """The model with some bytes replaced by as many others."""
        content = self.good
        for old, new in changes:
            self.assertEqual(len(old), len(new))
            self.assertTrue(old in content, old)
            content = content.replace(old, new)
        path = self.path(name)
        with open(path, "wb") as file:
            file.write(content)
        return path

    def tensor_type(self, name, type_id):
        """A change that gives a tensor of two dimensions another type."""
        start = self.good.index(struct.pack("<Q", len(name)) + name)
        end = start + 8 + len(name) + 4 + 16
        entry = self.good[start:end + 4]
        return entry, self.good[start:end] + struct.pack("<I", type_id)

    def about(self, report):
        return [problem["about"] for problem in report["problems"]]

    def test_good_model(self):
        report = self.doctor(self.model)
        self.assertTrue(report["runs"])
        self.assertEqual(report["problems"], [])
        self.assertEqual(report["model"], self.model)
        self.assertEqual((report["architecture"], report["tokenizer"]), ("llama", "gpt2"))
        shape = report["shape"]
        self.assertEqual((shape["layers"], shape["width"], shape["heads"], shape["kv_heads"], shape["head_width"],
                          shape["context"], shape["tied_embeddings"]), (3, 64, 4, 2, 16, 1024, True))
        types = {entry["type"]: entry for entry in report["types"]}
        self.assertEqual(set(types), {"Q4_1", "Q8_0", "F32"})
        self.assertEqual(types["Q8_0"]["bytes"], shape["vocabulary"] * 64 // 32 * 34)
        self.assertEqual(types["Q4_1"]["tensors"], 3 * 7)
        self.assertEqual(sum(entry["bytes"] for entry in report["types"]), report["tensor_bytes"])
        self.assertLess(os.path.getsize(self.model) - report["tensor_bytes"], 200_000)
        self.assertEqual(report["chat_template"], "yes")
        self.check_memory(report)
        self.assertFalse(os.path.exists(self.path(".cache")), "nothing is made")

    def check_memory(self, report):
        memory = report["memory"]
        self.assertEqual(memory["weights_bytes"], report["tensor_bytes"])
        larger = self.doctor(self.model, "--kv-type", "f16")["memory"]
        self.assertEqual((memory["kv_type"], larger["kv_type"]), ("q8", "f16"))
        rows = {(row["sequences"], row["tokens"]): row for row in larger["sequences"]}
        self.assertEqual(set(rows), {(n, t) for n in (1, 16, 64) for t in (512, 1024)}, "up to the context")
        block = 64 * 3 * 2 * 16 * 2 * 2  # positions, layers, KV heads, width, keys and values, float16
        for (sequences, tokens), row in rows.items():
            blocks = sequences * tokens // 64
            self.assertEqual(row["kv_bytes"], blocks * block, (sequences, tokens))
            self.assertGreater(row["other_bytes"], 256 * 64 * 4)
        for row in memory["sequences"]:
            self.assertLess(row["kv_bytes"], 0.8 * rows[(row["sequences"], row["tokens"])]["kv_bytes"])

    def test_text(self):
        text = self.nightjar("doctor", "--model", self.model).stdout.decode()
        for pattern in (r"types +Q4_1 +21 tensors", r"family +llama", "layers +3, width 64", "1024 tokens, vocabulary",
                        "template +yes", "64 sequences", r"runs +yes\n"):
            with self.subTest(pattern):
                self.assertRegex(text, pattern)

    def test_architecture(self):
        report = self.doctor(self.changed("gemma.gguf", (b"llama", b"gemma")), code=65)
        self.assertEqual(self.about(report), ["architecture"])
        self.assertIn("gemma", report["problems"][0]["message"])
        self.assertEqual((report["shape"]["layers"], report["shape"]["width"]), (3, 64), "shown all the same")
        self.assertIsNone(report["memory"])

    def test_tensor_types(self):
        path = self.changed("types.gguf", self.tensor_type(b"blk.0.attn_q.weight", 10),
                            self.tensor_type(b"blk.1.attn_q.weight", 10), self.tensor_type(b"blk.1.ffn_up.weight", 99))
        report = self.doctor(path, code=65)
        self.assertEqual(self.about(report), ["tensors", "tensors"])
        self.assertRegex(report["problems"][0]["message"], r"2 tensors have type Q2_K \(number 10\)")
        self.assertRegex(report["problems"][1]["message"], r"1 tensors have type unknown \(number 99\)")
        unread = [entry for entry in report["types"] if not entry["read"]]
        self.assertEqual([(entry["type"], entry["bytes"]) for entry in unread], [("Q2_K", None), (None, None)])

    def test_tokenizer(self):
        marker = struct.pack("<Q", 18) + b"tokenizer.ggml.pre" + struct.pack("<I", 8)
        start = self.good.index(marker)
        length, = struct.unpack_from("<Q", self.good, start + len(marker))
        begin = start + len(marker) + 8
        old = self.good[start:begin + length]
        report = self.doctor(self.changed("pre.gguf", (old, old[:-length] + b"x" * length)), code=65)
        self.assertEqual(self.about(report), ["tokenizer"])
        self.assertIn("x" * length, report["problems"][0]["message"])
        self.assertEqual(report["pretokenizer"], "x" * length)

    def test_everything_is_listed(self):
        path = self.changed("all.gguf", (b"llama", b"mamba"), (b"gpt2", b"t5xx"),
                            self.tensor_type(b"blk.0.attn_q.weight", 16), (b"{%- for ", b"{%- fur "))
        report = self.doctor(path, code=65)
        self.assertEqual(self.about(report), ["architecture", "tensors", "tokenizer"])
        self.assertEqual(report["chat_template"], "refused")
        text = self.nightjar("doctor", "-m", path, code=65).stdout.decode()
        for pattern in ("runs +no:", "mamba", "IQ2_XXS", "t5xx", "template +refused"):
            self.assertRegex(text, pattern)

    def test_template_alone_is_no_obstacle(self):
        report = self.doctor(self.changed("template.gguf", (b"{%- for ", b"{%- fur ")), code=0)
        self.assertEqual((report["runs"], report["chat_template"]), (True, "refused"))
        self.assertIn("fur", report["chat_template_problem"])

    def test_no_model(self):
        self.nightjar("doctor", "-m", self.path("none.gguf"), code=66)
        self.nightjar("doctor", "-m", self.root, code=66)
        for name, content in (("text.gguf", b"hello" * 9), ("cut.gguf", self.good[:len(self.good) // 2])):
            with open(self.path(name), "wb") as file:
                file.write(content)
            self.assertIn(name, self.nightjar("doctor", "-m", self.path(name), code=65).stderr)


class Machine(Workspace):
    def doctor(self, *options):
        return json.loads(self.nightjar("doctor", "--json", *options).stdout)

    def test_machine(self):
        report = self.doctor()
        machine = report["machine"]
        self.assertEqual(machine["affinity_threads"], len(os.sched_getaffinity(0)))
        self.assertTrue(1 <= machine["threads"] <= machine["affinity_threads"] <= machine["hardware_threads"])
        with open("/proc/meminfo", encoding="ascii") as file:
            self.assertIn(f"MemTotal: {machine['memory_bytes'] >> 10} kB", re.sub(" +", " ", file.read()))
        self.assertTrue(0 < machine["free_bytes"] <= machine["memory_bytes"])
        if machine["cgroup_memory_bytes"] is not None:
            self.assertLess(machine["cgroup_memory_bytes"], machine["memory_bytes"])
        self.assertEqual("avx2" in machine["instructions"].split(), has_instructions("avx2"))
        runs = {kernels["name"]: kernels["runs"] for kernels in report["all_kernels"]}
        self.assertTrue(runs["reference"])
        for name in ("avx2", "avx-vnni", "avx512-vnni"):
            self.assertEqual(runs[name], has_instructions(name.replace("-", "_")), name)
        self.assertTrue(runs[report["kernels"]])
        self.check_rates(report)
        self.assertEqual(report["cache_directory"], self.path(".cache", "nightjar"))
        self.assertEqual(sorted(os.listdir(self.root)), ["model.gguf"], "nothing is left behind")

    def check_rates(self, report):
        rates = report["rates"]
        self.assertEqual(rates["threads"], report["machine"]["threads"])
        self.assertTrue(0.001 < rates["peak_tops"] < 1000, rates)
        self.assertTrue(1e8 < rates["memory_bytes_per_second"] < 1e13, rates)
        self.assertEqual(rates["disk_bytes_per_second"] is None, rates["disk_not_measured"] is not None)
        say(json.dumps(rates))

    def test_disk_that_cannot_be_measured(self):
        rates = self.doctor("--cache-dir", "/proc/none", "--threads", 1)["rates"]
        self.assertIsNone(rates["disk_bytes_per_second"])
        self.assertIn("/proc", rates["disk_not_measured"])
        self.assertEqual(rates["threads"], 1)
        text = self.nightjar("doctor", environment={"HOME": ""}).stdout.decode()
        for pattern in ("processor +.", "threads +[0-9]+ usable", "memory +[0-9].* free", "kernels +.*fastest",
                        "peak +[0-9.]+ TOPS", "reads +[0-9.]+ GB/s from memory", "disk not measured: no cache directory"):
            with self.subTest(pattern):
                self.assertRegex(text, pattern)

    def test_usage(self):
        self.nightjar("doctor", "something", code=64)
        self.nightjar("doctor", "--kernels", "sse9", code=64)


if __name__ == "__main__":
    main()
