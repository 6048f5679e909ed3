#!/usr/bin/env python3
"""check_nvcc.py NVCC ROOT [ARCHITECTURE...]: compiles kernels/cuda for GPUs and checks what became of it; no GPU needed.

- no kernel keeps anything on a stack or spills registers
- floats are rounded one by one where the source writes them so: nothing in PTX is approximated, flushed to zero or fused
  but where fmaf stands (docs/arithmetic.md)
- the products that belong on tensor cores are there, and copies are asynchronous from sm_80 on

Prints registers and shared memory. Exits with 77 where there is no nvcc."""
import glob
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

ARCHITECTURES = ["75", "80", "86", "89", "90", "120"]
FLAGS = ["-std=c++17", "-O3", "-fmad=false", "-Werror", "all-warnings"]
FLOAT = re.compile(r"\b(?:mul|add|sub|fma|mad|div|sqrt|rcp|ex2|rsqrt|lg2)\.[a-z0-9.]*f(?:32|64)\b")
ROUNDED = re.compile(r"\b(?:mul|add|sub|fma|div)\.rn\.f32$")  # without .rn, ptxas may fuse
TENSOR_CORES = {"matmul_many", "attention_q8"}
ASYNCHRONOUS = {"matmul_many"}


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stdout}")
    return done.stdout


def examine_kernels(log):
    """(name, registers, bytes of shared memory, problem) of each kernel that ptxas speaks of."""
    for entry in re.split(r"Compiling entry function '", log)[1:]:
        memory = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", entry)
        registers = re.search(r"Used (\d+) registers", entry)
        shared = re.search(r"(\d+) bytes smem", entry)
        problem = ""
        if memory is None or registers is None:
            problem = "the compiler says nothing of its registers"
        elif any(int(number) for number in memory.groups()):
            problem = memory.group(0)
        yield entry.split("'")[0], int(registers.group(1)) if registers else 0, int(shared.group(1)) if shared else 0, problem


def examine_ptx(name, architecture, ptx):
    for instruction in sorted(set(FLOAT.findall(ptx))):
        if not ROUNDED.search(instruction):
            yield f"{instruction} is not rounded as the arithmetic wants it"
    if name in TENSOR_CORES and "mma.sync" not in ptx:
        yield "no product on tensor cores"
    if name in ASYNCHRONOUS and int(architecture) >= 80 and "cp.async" not in ptx:
        yield "no asynchronous copy"


def check_source(nvcc, root, source, architecture, folder):
    """(kernels, problems) of one file on one architecture."""
    name = os.path.splitext(os.path.basename(source))[0]
    place = os.path.join(folder, f"{name}.{architecture}")
    os.mkdir(place)
    log = run([nvcc, *FLAGS, "-I", root, f"-arch=sm_{architecture}", "-Xptxas", "-v", "--keep", "--keep-dir", place,
               "-cubin", source, "-o", os.path.join(place, "image.cubin")])
    kernels = list(examine_kernels(log))
    problems = [f"{kernel}: {problem}" for kernel, _, _, problem in kernels if problem]
    with open(os.path.join(place, name + ".ptx"), encoding="utf-8") as file:
        problems += [f"{name}: {problem}" for problem in examine_ptx(name, architecture, file.read())]
    if not kernels:
        problems.append(f"{name}: no kernel")
    return kernels, [f"sm_{architecture} {problem}" for problem in problems]


def main():
    nvcc, root, *architectures = sys.argv[1:]
    if not nvcc or nvcc.endswith("NOTFOUND"):
        print("skipped: no nvcc, so the CUDA kernels are not compiled for GPUs")
        sys.exit(77)
    known = run([nvcc, "--list-gpu-arch"]).split()
    architectures = [a for a in architectures or ARCHITECTURES if f"compute_{a}" in known]
    sources = sorted(glob.glob(os.path.join(root, "kernels/cuda/*.cu")))
    problems = [] if sources and architectures else ["nothing to compile"]
    table = {}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        jobs = [(a, pool.submit(check_source, nvcc, root, s, a, folder)) for s in sources for a in architectures]
        for architecture, job in jobs:
            kernels, found = job.result()
            problems += found
            for name, registers, shared, _ in kernels:
                table.setdefault(name, (shared, {}))[1][architecture] = registers
    print("bytes of shared memory, and registers on " + ", ".join("sm_" + a for a in architectures))
    for name, (shared, registers) in sorted(table.items()):
        print(f"  {name:28}{shared:7}" + "".join(f"{registers.get(a, 0):6}" for a in architectures))
    print("\n".join(problems + [f"{len(table)} kernels, {len(problems)} problems"]))
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
