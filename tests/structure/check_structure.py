#!/usr/bin/env python3
"""Checks what docs/design.md says about the shape of the source: the direction of includes, what only jobs/
may use, what kernels/ may not, the length of files and functions, and which files stand at the top level."""
import os
import re
import sys

LAYERS = ["kernels", "engine", "pipeline", "jobs"]  # each may include itself and what stands before it
ROOMS = {"engine": ["base", "disk", "formats", "tokenizer", "chat_template", "model", "sweep"],
         "pipeline": ["base", "input", "request", "index", "output", "machine", "job"]}  # likewise
TOP_LEVEL = {"CMakeLists.txt", "CMakePresets.json", "pipeline", "engine", "kernels", "jobs", "tests", "samples",
             "README.md", "LICENSE", "CHANGELOG.md", "docs", "build"}
ONLY_IN_JOBS = re.compile(r"(?<![\w.>])(exit|_exit|getenv|secure_getenv)\s*\(|\bargv\b")
NOT_IN_KERNELS = re.compile(r"(?<![\w.>])(open|fopen|read|pread|write|printf|fprintf|puts|fputs|perror)\s*\(|<jansson.h>")
MAPS_A_FILE = re.compile(r"\bmmap\s*\((?![^;]*MAP_ANONYMOUS)")
MOST_FILE_LINES = 800
MOST_FUNCTION_LINES = 100


def sources(root, folders):
    for folder in folders:
        for directory, _, names in os.walk(os.path.join(root, folder)):
            for name in sorted(names):
                if name.endswith((".c", ".h", ".cu")):
                    path = os.path.join(directory, name)
                    with open(path, encoding="utf-8") as file:
                        yield os.path.relpath(path, root), file.read()


def without_comments_and_strings(text):
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))

    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', blank, text, flags=re.S)


def function_lengths(text):
    """(first line, lines) of each function body: from a line that is '{' to the next line that is '}'."""
    start = None
    for number, line in enumerate(text.splitlines(), 1):
        if line == "{":
            start = number
        elif line == "}" and start is not None:
            yield start, number - start + 1
            start = None


def check_includes(path, text):
    layer = LAYERS.index(path.split("/")[0])
    rooms = ROOMS.get(LAYERS[layer], [])
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r'\s*#\s*include\s+"([^"/]+)/', line)
        if match and match.group(1) in LAYERS and LAYERS.index(match.group(1)) > layer:
            yield f"{path}:{number}: {LAYERS[layer]}/ may not include {match.group(1)}/"
        elif re.match(r'\s*#\s*include\s+"(?!kernels/|engine/|pipeline/|jobs/)', line):
            yield f"{path}:{number}: includes are written from the root of the repository"
        match = re.match(rf'\s*#\s*include\s+"{LAYERS[layer]}/([^"/]+)/', line)
        if match and rooms and rooms.index(match.group(1)) > rooms.index(path.split("/")[1]):
            yield f"{path}:{number}: {'/'.join(path.split('/')[:2])}/ may not include {LAYERS[layer]}/{match.group(1)}/"


def check_content(path, text):
    layer = path.split("/")[0]
    code = without_comments_and_strings(text)
    for number, line in enumerate(code.splitlines(), 1):
        if layer != "jobs" and ONLY_IN_JOBS.search(line):
            yield f"{path}:{number}: exit, getenv and argv belong to jobs/"
        if layer == "kernels" and NOT_IN_KERNELS.search(line):
            yield f"{path}:{number}: kernels/ does no file I/O, parsing or logging"
    for match in MAPS_A_FILE.finditer(code):
        yield f"{path}:{code[:match.start()].count(chr(10)) + 1}: files are never mapped"
    lines = text.count("\n")
    if lines > MOST_FILE_LINES:
        yield f"{path}: {lines} lines (at most {MOST_FILE_LINES})"
    for first, length in function_lengths(code):
        if length > MOST_FUNCTION_LINES:
            yield f"{path}:{first}: a function of {length} lines (at most {MOST_FUNCTION_LINES})"


def main():
    root = sys.argv[1]
    problems = [f"{name}: not a name of the top level" for name in sorted(os.listdir(root))
                if name not in TOP_LEVEL and not name.startswith(".")]
    count = 0
    for path, text in sources(root, LAYERS):
        count += 1
        problems += check_includes(path, text)
        problems += check_content(path, text)
    for path, text in sources(root, ["tests"]):
        if text.count("\n") > MOST_FILE_LINES:
            problems.append(f"{path}: {text.count(chr(10))} lines (at most {MOST_FILE_LINES})")
    print("\n".join(problems + [f"{count} source files, {len(problems)} problems"]))
    sys.exit(1 if problems or count == 0 else 0)


if __name__ == "__main__":
    main()
