"""Writes the pages of the site that come from the code: a hook of MkDocs."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from pydantic import BaseModel
from typer.main import get_command
from typer.testing import CliRunner

import uncurse
from uncurse import testing
from uncurse.cli import app
from uncurse.scoring.registry import Parameter, parameters_of
from uncurse.scoring.scores import SCORES
from uncurse.scoring.stopping import RULES
from uncurse.serving import requests, responses
from uncurse.study.plan import PerceptronPlan, Plan, SetPlan, SystemPlan
from uncurse.training.recipe import DataConfig, NetworkConfig, TokenizerConfig, TrainingConfig

ROOT: Final = Path(__file__).parents[1]
CARD: Final = ROOT / "src/uncurse/models/pretrained/zh-en-small/README.md"
TABLES: Final = {  # a TOML file: its tables, by name
    "A training recipe": {
        "[data]": DataConfig,
        "[tokenizer]": TokenizerConfig,
        "[model]": NetworkConfig,
        "[training]": TrainingConfig,
    },
    "A study plan": {
        "top level": Plan,
        "[dev], [test]": SetPlan,
        "[perceptron]": PerceptronPlan,
        "[[systems]]": SystemPlan,
    },
}
PYTHON: Final = {  # sections of the reference, with their names
    "Translate": ("load", "translation.translator.Translator", "translation.translator.Translation"),
    "Search": ("beam_search", "Search", "Decoding", "Sentence", "Slots", "Result", "Hypothesis", "Certificate"),
    "Record once, judge every rule": ("record", "judge", "Trace", "save_traces", "load_traces"),
    "The true optimum": ("exact_search", "ExactResult"),
    "Scores and stopping rules": (
        "SCORES",
        "RULES",
        "Rescorer",
        "Source",
        "Paths",
        "StoppingRule",
        "Evidence",
        "parameter",
    ),
    "Models": ("StepModel", "State", "Continuations", "ModelError"),
    "Lengths": ("LengthPredictor", "FixedRatio", "parse_max_length"),
    "Constraints": ("Constraint", "NextTokens", "Trie", "Automaton", "BannedPhrases", "NoRepeatNgram", "AllOf"),
    "Inside transformers": ("huggingface.beam_search", "huggingface.BeamSearchOutput", "huggingface.token_texts"),
    "Errors": ("UncurseError",),
}


def python() -> str:
    """The public names, section by section."""
    missing = set(uncurse.__all__) - {"__version__"} - {name for names in PYTHON.values() for name in names}
    assert not missing, f"no section for {missing}"
    parts = ["# Python\n", "`import uncurse` gives the names below; PyTorch is imported only by `uncurse.load`."]
    for title, names in PYTHON.items():
        parts += [f"## {title}", *(f"::: uncurse.{name}" for name in names)]
    parts += ["## Testing a score or a model of your own"]
    parts += [f"::: uncurse.testing.{name}" for name in testing.__all__]
    return "\n\n".join(parts)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    pages: dict[str, Callable[[], str]] = {
        "reference/python.md": python,
        "reference/command-line.md": command_line,
        "reference/methods.md": methods,
        "reference/toml.md": toml_keys,
        "reference/json.md": json_record,
        "reference/http.md": http_api,
        "reference/zh-en-small.md": lambda: CARD.read_text(encoding="utf-8"),
        "contributing.md": lambda: from_root("CONTRIBUTING.md"),
        "changelog.md": lambda: from_root("CHANGELOG.md"),
    }
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content()))
    return files


def from_root(name: str) -> str:
    """A page of the repository, with links as seen from the folder of the documentation."""
    return (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")


def table(columns: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def commands(group: Any, path: str = "") -> Iterator[str]:  # noqa: ANN401  (typer's own click)
    """The names of all commands, those of groups included."""
    for name, command in group.commands.items():
        if "commands" not in vars(command) or command.invoke_without_command:
            yield f"{path}{name}"
        if "commands" in vars(command):
            yield from commands(command, f"{path}{name} ")


def command_line() -> str:
    """The help of every command."""
    parts = ["# Command line\n", "Every command prints this with `--help`."]
    for command in commands(get_command(app)):
        shown = CliRunner().invoke(app, [*command.split(), "--help"], prog_name="uncurse", terminal_width=78)
        assert shown.exit_code == 0, f"uncurse {command}"
        parts.append(f"## uncurse {command}\n\n```text\n{shown.output.strip()}\n```")
    return "\n\n".join(parts)


def methods() -> str:
    """Every score and stopping rule."""
    parts = [
        "# Scores and stopping rules\n",
        "`S` log-probability, `n` length with `</s>`, `L` expected length, `R` maximum length, `b` beam size; the"
        " [theory](../theory.md) has the rest. Write parameters after the name: `gnmt:alpha=0.2,beta=0.2`.",
    ]
    for title, registry in (("Scores", SCORES), ("Stopping rules", RULES)):
        parts.append(f"## {title}")
        for entry in registry.values():  # type: ignore[attr-defined]
            summary = (inspect.getdoc(entry.method) or "").split("\n\n")[0]
            rows = (
                [f"`{field.name}`", declared.meaning, declared.range, default_of(field)]
                for field, declared in parameters_of(entry.method)
            )
            found = table(["parameter", "meaning", "range", "default"], rows)
            parts += [f"### {entry.name}", f"`{entry.formula}` ({entry.source})", summary]
            parts += [found] if found.count("\n") > 1 else []
    return "\n\n".join(parts)


def default_of(field: dataclasses.Field[Any]) -> str:
    """The default of a field of a dataclass, as text."""
    if field.default_factory is not dataclasses.MISSING:
        return ""
    if field.default is dataclasses.MISSING:
        return "required"
    return "" if field.default is None else f"`{field.default}`"


def toml_keys() -> str:
    """The keys of recipes and plans, with the comments of their dataclasses."""
    parts = ["# TOML keys\n", "An unknown key is an error that names the nearest valid one."]
    for title, tables in TABLES.items():
        parts.append(f"## {title}")
        for name, kind in tables.items():
            source = inspect.getsource(kind)
            rows = ([f"`{field.name}`", *described(field, source)] for field in dataclasses.fields(kind))
            parts += [
                f"### {name}",
                inspect.getdoc(kind) or "",
                table(["key", "type", "default", "meaning"], rows),
            ]
    return "\n\n".join(parts)


def described(field: dataclasses.Field[Any], source: str) -> list[str]:
    """Type, default and meaning of a field."""
    declared = next((each for each in field.metadata.values() if isinstance(each, Parameter)), None)
    comment = re.search(rf"^    {field.name}: .*?  # (.*)$", source, flags=re.MULTILINE)
    meaning = declared.meaning if declared else comment[1] if comment else ""
    return [f"`{field.type}`", default_of(field), meaning]


def model_table(model: type[BaseModel]) -> str:
    """The fields of a request or a response."""
    schema = model.model_json_schema()
    required = schema.get("required", ())
    rows = (
        [
            f"`{name}`",
            type_of(field),
            "required" if name in required else f"`{field.get('default')}`",
            field.get("description", ""),
        ]
        for name, field in schema["properties"].items()
    )
    return table(["field", "type", "default", "meaning"], rows)


def type_of(field: dict[str, Any]) -> str:
    """The JSON type of a field."""
    if "anyOf" in field:
        return " or ".join(type_of(each) for each in field["anyOf"])
    if "$ref" in field:
        return str(field["$ref"]).rpartition("/")[2]
    items = f" of {type_of(field['items'])}" if field.get("items") else ""
    return f"{field.get('type', 'any')}{items}"


def json_record() -> str:
    """The record of a translation."""
    return (
        "# JSON record\n\n`uncurse translate --json`, `--out FILE.jsonl` and `POST /translate` write one record"
        " for each line. Files also have `line`, `id`, `source` and `source_truncated`; only the service adds"
        " `in_time`.\n\n" + model_table(responses.TranslationResponse)
    )


def http_api() -> str:
    """Requests and responses of the service."""
    parts = [
        "# HTTP API\n",
        "A running service describes itself at `/openapi.json`; see [serving](../serving.md).",
    ]
    for title, model in (
        ("POST /translate", requests.TranslationRequest),
        ("its response", responses.TranslationsResponse),
        ("POST /explain", requests.ExplanationRequest),
        ("its explanation", responses.ExplanationResponse),
        ("GET /methods", responses.MethodsResponse),
        ("GET /health", responses.HealthResponse),
    ):
        parts += [f"## {title}", inspect.getdoc(model) or "", model_table(model)]
    return "\n\n".join(parts)
