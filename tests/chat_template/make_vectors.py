#!/usr/bin/env python3
"""Renders the cases of tests/data/chat_template with Jinja2, set up as transformers sets it up, and writes what
the interpreter must give: vectors.jsonl from cases.jsonl, random.jsonl from a seeded generator.

Needs the PyPI package jinja2 (made with 3.1.6 on Python 3.11). Each line of cases.jsonl has `template`,
`conversation` and `variables` (names in inputs.json, or the variables themselves), and optionally
`add_generation_prompt`, `now`, and `refused`: what the interpreter's own message must hold where it refuses
something that Jinja2 may accept (with `at_render` if only rendering can know).
"""
import json
import pathlib
import random

from transformers_jinja import render

DATA = pathlib.Path(__file__).resolve().parent.parent / "data" / "chat_template"

# ---- random templates ----


class Generator:
    """Templates over the standard variables, random but repeatable."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def pick(self, *choices):
        return self.random.choice(choices)

    def text(self):
        return self.pick("", "a", "ab", "Ab c", " x ", "b,a,,c", "é☃", "l1\\nl2", "7", "<&>")

    def atom(self):
        number = str(self.random.randint(-3, 12))
        return self.pick(
            number, number, number + ".5", f"'{self.text()}'", f"'{self.text()}'", "true", "false", "none", "n", "x",
            "flag", "nothing", "word", "items", "names", "empty_list", "record", "nope", "people", "people[0]",
            "messages[0].role", "record.a", "[1, 2, 'z']", "(3, 1)", "{'k': 1, 'j': [2]}", "range(4)",
        )

    def postfix(self, depth):
        value = self.expression(depth - 1)
        value = value if value.isalnum() else f"({value})"
        return value + self.pick(
            "[0]", "[-1]", "['a']", "[1:]", "[::-1]", ".name", ".b", ".split()", ".strip()", ".upper()", ".title()",
            ".items()|list", ".get('a', 5)", ".replace('a', 'X')", ".split(',')", ".startswith('a')", ".find('b')",
            "|upper", "|lower", "|trim", "|length", "|list", "|first", "|last", "|sort", "|join(',')", "|string",
            "|int", "|float", "|tojson", "|default('dd')", "|default(1, true)", "|title", "|capitalize", "|reverse|list",
            "|unique|list", "|map('string')|list", "|select|list", "|reject('string')|list", "|sum", "|min", "|max",
            "|abs", "|round(1)", "|replace('a', 'b')", "|indent(2)", "|dictsort", "|map(attribute='name')|list",
            "|selectattr('age')|list", "|batch(2)|list", "|e", "|tojson(indent=1)",
        )

    def test(self, depth):
        value = self.expression(depth - 1)
        name = self.pick(
            "defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "sequence",
            "iterable", "true", "false", "odd", "even", "eq 1", "ne 'a'", "lt 3", "ge 2", "in [1, 2, 'ab']", "lower",
            "upper", "callable", "divisibleby 2",
        )
        return f"({value}) is {self.pick('', 'not ')}{name}"

    def expression(self, depth):
        if depth <= 0 or self.random.random() < 0.15:
            return self.atom()
        kind = self.random.randrange(12)
        left, right = self.expression(depth - 1), self.expression(depth - 1)
        if kind < 3:
            return f"{left} {self.pick('+', '-', '*', '/', '//', '%', '~', '~')} {right}"
        if kind == 3:
            return f"{left} {self.pick('==', '!=', '<', '<=', '>', '>=', 'in', 'not in')} {right}"
        if kind == 4:
            return f"{left} {self.pick('and', 'or')} {right}"
        if kind == 5:
            return f"(not {left})"
        if kind == 6:
            return f"({left} if {right} else {self.expression(depth - 1)})"
        if kind == 7:
            return f"[{left}, {right}]"
        if kind == 8:
            return self.test(depth)
        if kind == 9:
            return f"({left})"
        return self.postfix(depth)

    def expression_template(self):
        return "{{ " + self.expression(self.random.randint(1, 3)) + " }}"

    def space(self):
        return "".join(self.pick("", " ", "  ", "\n", "\n", "\t", "a", "b ", " c", "\n\n", "\r\n") for _ in range(3))

    def open(self, mark="%"):
        return "{" + mark + self.pick("", "", "-", "+") + self.pick(" ", " ", "\n")

    def close(self, mark="%"):
        return self.pick(" ", "\n ") + self.pick("", "", "-", "+") + mark + "}"

    def tag(self, inner):
        return self.open() + inner + self.close()

    def piece(self, depth):
        kind = self.random.randrange(9) if depth > 0 else self.random.randrange(4)
        if kind == 0:
            return "{{" + self.pick("", "-") + " " + self.pick("1", "'q'", "word", "n") + " " + self.pick("", "-") + "}}"
        if kind == 1:
            return "{#" + self.pick("", "-", "+") + self.space() + self.pick("", "-", "+") + "#}"
        if kind == 2:
            return self.tag("set z = 1")
        if kind == 3:
            return "{%" + self.pick("", "-", "+") + " raw " + self.pick("", "-") + "%}" + self.space() + self.tag("endraw")
        body = self.body(depth - 1)
        if kind == 4:
            return self.tag("if " + self.pick("true", "false")) + body + self.tag("endif")
        if kind == 5:
            return self.tag("if false") + "x" + self.tag("else") + body + self.tag("endif")
        if kind == 6:
            return self.tag("for i in range(2)") + body + self.tag("endfor")
        if kind == 7:
            return self.tag("set y") + body + self.tag("endset") + "{{ y }}"
        return self.tag("filter upper") + body + self.tag("endfilter")

    def body(self, depth):
        return "".join(self.space() + self.piece(depth) for _ in range(self.random.randint(1, 3))) + self.space()

    def whitespace_template(self):
        return self.body(2)


def write(path, cases):
    with open(path, "w", encoding="utf-8") as out:
        for case in cases:
            out.write(json.dumps(case, ensure_ascii=False) + "\n")
    print(f"{path.name}: {len(cases)} cases, {sum('expected' in case for case in cases)} of them render")


def main():
    inputs = json.loads((DATA / "inputs.json").read_text(encoding="utf-8"))
    with open(DATA / "cases.jsonl", encoding="utf-8") as lines:
        cases = [json.loads(line) for line in lines]
    write(DATA / "vectors.jsonl", [case if "refused" in case else {**case, **render(case, inputs)} for case in cases])
    generator, drawn = Generator(20240229), []
    while len(drawn) < 900:
        template = generator.expression_template() if len(drawn) < 600 else generator.whitespace_template()
        case = {"template": template, "conversation": "one", "variables": "standard"}
        result = render(case, inputs)
        # Jinja2 evaluates constants at compile time, at times with other results: those are left out.
        unfolded = template.replace("{{ ", "{% set r = ").replace(" }}", " %}{{ r }}")
        if len(drawn) < 600 and result != render({**case, "template": unfolded}, inputs, optimized=False):
            continue
        case.update(result)
        # Most random expressions are type errors; keep one in six of those.
        if "expected" in case or generator.random.random() < 0.16:
            drawn.append(case)
    write(DATA / "random.jsonl", drawn)


main()
