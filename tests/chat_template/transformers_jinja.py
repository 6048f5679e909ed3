"""Jinja2 set up as transformers sets it up for chat templates (PyPI package jinja2)."""
import copy
import datetime
import json

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

BOS, EOS = "<s>", "</s>"


class GenerationTag(jinja2.ext.Extension):
    """{% generation %} renders its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def make_environment(now, optimized=True):
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, jinja2.ext.loopcontrols], optimized=optimized
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=now)
    environment.globals["strftime_now"] = moment.strftime
    return environment


def render(case, inputs, optimized=True):
    """The expected text, or the kind of error: of compilation (with its line) or of rendering."""
    try:
        template = make_environment(case.get("now", 0), optimized).from_string(case["template"])
    except jinja2.exceptions.TemplateSyntaxError as error:
        return {"error": "compile", "line": error.lineno}
    except SyntaxError:  # of the Python code that Jinja2 makes
        return {"error": "compile"}
    variables = case.get("variables", {})
    if isinstance(variables, str):
        variables = inputs["variables"][variables]
    values = {"bos_token": BOS, "eos_token": EOS, "tools": None, "documents": None, **variables}
    values["messages"] = inputs["conversations"][case["conversation"]]
    values["add_generation_prompt"] = case.get("add_generation_prompt", False)
    try:
        text = template.render(**copy.deepcopy(values))  # some filters change lists in place
        text.encode()
    except Exception:  # templates raise whatever Python raises
        return {"error": "render"}
    if " at 0x" in text:  # an address: no text that could be compared
        return {"error": "render"}
    return {"expected": text}
