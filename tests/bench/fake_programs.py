"""What the tests of the comparisons share: programs that stand for nightjar and llama.cpp."""
import os
import subprocess
import sys
import tempfile
import unittest

FOLDER = os.path.dirname(os.path.abspath(__file__))


class FakePrograms(unittest.TestCase):
    """A test class with a temporary folder that is the build folder of llama.cpp, too."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="nightjar-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        os.mkdir(os.path.join(self.folder, "bin"))

    def program(self, name, body, interpreter="/bin/sh"):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!" + interpreter + "\n" + body + "\n")
        os.chmod(path, 0o755)
        return path

    def compare(self, script, nightjar, rounds, *options):
        return subprocess.run([sys.executable, "-B", os.path.join(FOLDER, script), self.folder, "m.gguf", "--nightjar",
                               nightjar, "--threads", "2", "--rounds", str(rounds), *options],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
