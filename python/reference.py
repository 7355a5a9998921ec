"""Writes docs/reference/python.md from the docstrings of the package; `--check` says whether it is current.

Every name of `__all__` of every module that is meant to be imported belongs to a section, or nothing is written.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, is_typeddict

import forebay as fb
import forebay.lightning
import forebay.torch
from forebay import errors

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "python.md"

HEAD = """# The Python package

Made from the docstrings by `python/reference.py`; do not edit. `import forebay as fb` brings the names that begin
with `fb`; `forebay.lightning` is a module of its own. The guide begins with the [first batch](../guide/first-batch.md).
"""

MODULES: dict[str, ModuleType] = {
    "fb": fb,
    "fb.recipes": fb.recipes,
    "fb.ray": fb.ray,
    "fb.torch": forebay.torch,
    "forebay.lightning": forebay.lightning,
}
"""The modules that are meant to be imported, by what the page calls them."""

SECTIONS: dict[str, list[Any]] = {
    "Data": [fb.open, fb.TokenOptions, fb.synthetic, fb.mix, fb.join, fb.Dataset],
    "Recipes": [
        fb.image,
        fb.video,
        fb.audio,
        fb.label,
        fb.text,
        fb.tokens,
        fb.json,
        fb.npy,
        fb.raw,
        fb.boxes,
        fb.Image,
        fb.Boxes,
        fb.Video,
        fb.Audio,
        fb.Text,
        fb.Tokens,
        fb.Column,
        fb.map,
        fb.filter,
        fb.map_batch,
        fb.mixup,
        fb.cutmix,
        fb.mixup_or_cutmix,
        fb.SampleOp,
        fb.Recipe,
        fb.Normalization,
        fb.IMAGENET,
        fb.recipes.imagenet_train,
        fb.recipes.imagenet_val,
        fb.recipes.simclr,
        fb.recipes.speech_logmel,
        fb.recipes.lm_pack,
    ],
    "Loading": [
        fb.Loader,
        fb.Batch,
        fb.Payloads,
        fb.Ragged,
        fb.Stats,
        fb.BadSample,
        fb.SkippedBatch,
        fb.show,
        fb.materialize,
    ],
    "With torch": [fb.torch.dataset, fb.torch.IterableDataset, fb.torch.to_device, fb.torch.DeviceBatches],
    "With Lightning": [forebay.lightning.Phases],
    "Stalls": [fb.analyze, fb.Analysis],
    "On Ray": [fb.ray.start, fb.ray.Cluster, fb.ray.Service],
}


def page() -> str:
    parts = [HEAD]
    for title, things in SECTIONS.items():
        parts.append(f"## {title}\n")
        parts += [part for thing in things for part in describe(thing)]
    parts.append("## Errors\n\n" + errors_table())
    parts.append("## Environment\n\n" + environment())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts))


def names() -> dict[int, str]:
    """What each public object is called on the page, by its identity."""
    found: dict[int, str] = {}
    for prefix, module in MODULES.items():
        for name in module.__all__:
            found.setdefault(id(getattr(module, name)), f"{prefix}.{name}")
    return found


def left_out() -> list[str]:
    """Public names that no section has. Modules and the version need none; errors have a table."""
    shown = {id(thing) for things in SECTIONS.values() for thing in things}
    shown |= {id(getattr(errors, name)) for name in errors.__all__}
    shown |= {id(module) for module in MODULES.values()}
    return [name for key, name in names().items() if key not in shown and not name.endswith("__")]


def describe(thing: Any) -> list[str]:
    name = names()[id(thing)]
    if not callable(thing):
        doc = remarks(sys.modules[type(thing).__module__])[name.rpartition(".")[2]]
        return [f"### `{name}`\n", f"```python\n{name} = {thing}\n```\n", paragraphs(doc)]
    parts = [f"### `{name}`\n", signature(name, thing), paragraphs(inspect.getdoc(thing) or "")]
    if not inspect.isclass(thing):
        return parts
    if is_typeddict(thing):
        return [*parts, *(f"- `{key}`: {one_line(doc)}" for key, doc in remarks(thing).items()), ""]
    # What Lightning calls by itself is not for a reader.
    bases = [base for base in thing.__mro__ if "lightning" in base.__module__.partition(".")[0]]
    hooks = {hook for base in bases for hook in vars(base)}
    for member, value in vars(thing).items():
        is_hidden = member.startswith("_") or member in hooks
        if is_hidden or "Not a public interface" in (inspect.getdoc(value) or ""):
            continue
        if isinstance(value, property) or inspect.isgetsetdescriptor(value):
            parts.append(f"- `.{member}`: {one_line(inspect.getdoc(value))}")
        elif (inspect.isfunction(value) or inspect.ismethoddescriptor(value)) and value.__doc__:
            parts.append(f"- `.{member}{short(value)}`: {one_line(value.__doc__)}")
    return [*parts, ""]


def remarks(thing: Any) -> dict[str, str]:
    """The strings that stand below names in the body of a module or a class."""
    body = ast.parse(inspect.getsource(thing)).body
    if inspect.isclass(thing):
        (body,) = (node.body for node in body if isinstance(node, ast.ClassDef))
    found = {}
    for node, below in itertools.pairwise(body):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if (
            isinstance(target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            found[target.id] = str(below.value.value)
    return found


def signature(name: str, thing: Any) -> str:
    """Names and defaults; the text says what each argument means and may be."""
    if thing in (fb.Loader,):
        return "```python\nfb.Loader(data, recipe, *, ...)\n```\n"
    if inspect.isclass(thing):
        return ""
    return f"```python\n{name}{short(thing)}\n```\n"


def short(function: Any) -> str:
    """A signature without types."""
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name != "self"
    ]
    return str(inspect.Signature(parameters))


def one_line(text: str | None) -> str:
    """The first paragraph."""
    return " ".join(inspect.cleandoc(text or "").split("\n\n")[0].split())


def paragraphs(text: str) -> str:
    """Docstrings as they are, but for lines `name: what it is`, which become a list."""
    lines, in_list = [], False
    for line in text.splitlines():
        name, colon, rest = line.partition(": ")
        is_entry = bool(colon) and all(part.isidentifier() for part in name.split(", "))
        if is_entry:
            lines += ([] if in_list else [""]) + [f"- `{name}`: {rest}"]
            in_list = True
        else:
            in_list = in_list and line.startswith("    ")
            lines.append("  " + line.strip() if in_list else line)
    return "\n".join(lines) + "\n"


def errors_table() -> str:
    rows = ["| Class | Also a | When |", "| --- | --- | --- |"]
    for name in errors.__all__:
        cls = getattr(errors, name)
        builtin = next((base.__name__ for base in cls.__mro__[1:-2] if base.__module__ == "builtins"), "")
        also = "" if builtin in ("", "Exception", "BaseException") else f"`{builtin}`"
        rows.append(f"| `{name}` | {also} | {one_line(cls.__doc__)} |")
    facts = "All have `kind`, `hint`, `sample_id`, `key`, `object`, `offset`, `op`, `field` and `epoch`"
    return "\n".join(rows) + f"\n\n{facts}; see [errors](errors.md).\n"


def environment() -> str:
    from forebay._config import ARGUMENTS

    settable = [name for name, argument in ARGUMENTS.items() if argument.check.__name__ != "_anything"]
    names = ", ".join(f"`FOREBAY_{name.upper()}`" for name in settable if name != "worker_init_fn")
    taken = [name for name in inspect.signature(fb.open).parameters if name not in ("spec", "progress")]
    opened = ", ".join(f"`FOREBAY_{name.upper()}`" for name in taken)
    return (
        f"Each is the argument of `fb.Loader` with that name, which wins when both are given: {names}.\n\n"
        f"Of `fb.open`: {opened}.\n"
    )


def main() -> int:
    if missing := left_out():
        print(
            f"{PAGE.name}: no section has {', '.join(missing)}: give each its place in SECTIONS",
            file=sys.stderr,
        )
        return 1
    text = page()
    if "--check" in sys.argv[1:]:
        if PAGE.exists() and PAGE.read_text() == text:
            return 0
        print(f"{PAGE.name} is not what the docstrings say: run python/reference.py", file=sys.stderr)
        return 1
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
