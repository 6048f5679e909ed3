#!/usr/bin/env python3
"""Renders every chat template of a folder (*.jinja) with Jinja2 over the ten conversations of
tests/data/chat_template/popular.json and writes, as JSON on standard output, what test_template_popular compares.

Usage: render_templates.py FOLDER"""
import json
import pathlib
import sys

from transformers_jinja import render

INPUTS = pathlib.Path(__file__).resolve().parent.parent / "data" / "chat_template" / "popular.json"


def main():
    inputs = json.loads(INPUTS.read_text(encoding="utf-8"))
    templates = []
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        cases = [{**case, **render({**case, "template": source}, inputs)} for case in inputs["cases"]]
        templates.append({"name": path.stem, "template": source, "cases": cases})
    json.dump({**inputs, "templates": templates}, sys.stdout)


main()
