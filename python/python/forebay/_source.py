"""What a function is, in a few bytes: a fingerprint of its source and of what it was made with.

A recipe names its functions by this fingerprint, so that a changed function is a changed recipe. It covers the source
text, defaults, captured values, and constants and functions of the same module that it uses. Of objects whose contents
cannot be told (an open file, a model in C) only the type counts.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import textwrap
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from forebay.errors import InvalidConfigError, NotFoundError

__all__ = ["fingerprint", "import_named", "is_importable", "name_of", "takes_generator"]

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
_DEPTH = 8
"""Objects inside of objects that are looked at."""


def fingerprint(function: Callable[..., Any]) -> str:
    """32 hexadecimal digits, equal for equal functions, in every process and release of Python."""
    digest = hashlib.blake2b(digest_size=16)
    for part in _parts(function, 0, set()):
        digest.update(part.encode("utf-8", "surrogatepass"))
        digest.update(b"\0")
    return digest.hexdigest()


def takes_generator(function: Callable[..., Any]) -> bool:
    """Whether it wants a generator beside the value: two arguments that must be given, or one called `rng`."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = [p for p in places if p.default is p.empty]
    return len(needed) >= 2 or (len(places) >= 2 and places[1].name == "rng")


def name_of(function: Callable[..., Any]) -> str:
    """`module:name`, whether or not it can be imported from there."""
    inner = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    if not hasattr(inner, "__qualname__"):
        inner = type(inner)
    # A method of a class in C knows its class alone.
    home = inner if getattr(inner, "__module__", None) else getattr(inner, "__objclass__", None)
    return f"{getattr(home, '__module__', None) or '?'}:{inner.__qualname__}"


def import_named(name: str) -> Callable[..., Any]:
    """The function at `module:name`."""
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as problem:
        raise NotFoundError(
            f"import `{name}`: {type(problem).__name__}: {problem}",
            hint=f"`{module}` must be a module that this Python finds: install it, or add its folder to PYTHONPATH",
        ) from problem
    if not callable(found):
        raise InvalidConfigError(f"import `{name}`: it cannot be called")
    return found  # type: ignore[no-any-return]


def is_importable(function: Callable[..., Any], name: str | None = None) -> bool:
    """Whether another process finds the same function by its name. What `__main__` holds is never found."""
    name = name_of(function) if name is None else name
    if name.startswith(("__main__:", "__mp_main__:", "?:")) or "<" in name:
        return False
    try:
        return import_named(name) is function
    except (NotFoundError, InvalidConfigError):
        return False


def _parts(value: Any, depth: int, seen: set[int]) -> Iterator[str]:
    if isinstance(value, _PLAIN):
        yield f"{type(value).__name__} {value!r}"
        return
    if depth > _DEPTH or id(value) in seen:
        yield f"again {type(value).__qualname__}"
        return
    seen.add(id(value))
    inner = functools.partial(_parts, depth=depth + 1, seen=seen)
    if isinstance(value, functools.partial):
        yield "partial"
        for part in (value.func, value.args, value.keywords):
            yield from inner(part)
    elif isinstance(value, types.MethodType):
        yield "method"
        yield from inner(value.__func__)
        yield from inner(value.__self__)
    elif isinstance(value, types.FunctionType):
        yield from _function(value, inner)
    elif isinstance(value, types.ModuleType):
        yield f"module {value.__name__}"
    elif isinstance(value, type):
        yield f"class {value.__module__}.{value.__qualname__}"
        yield _text_of(value) if depth <= 1 else ""
    elif isinstance(value, list | tuple):
        yield f"{type(value).__name__} {len(value)}"
        for item in value:
            yield from inner(item)
    elif isinstance(value, set | frozenset):
        yield f"set {sorted(map(repr, value))}"
    elif isinstance(value, dict):
        yield f"dict {len(value)}"
        for key, item in value.items():
            yield from inner(key)
            yield from inner(item)
    elif hasattr(value, "__array__"):
        yield from _array(value)
    else:
        kind = type(value)
        yield f"object {kind.__module__}.{kind.__qualname__}"
        if depth == 0:
            yield _text_of(kind)
        contents = getattr(value, "__dict__", None)
        if isinstance(contents, dict):
            yield from inner({name: contents[name] for name in sorted(contents)})


def _function(function: types.FunctionType, inner: Callable[[Any], Iterator[str]]) -> Iterator[str]:
    text, code = _text_of(function), function.__code__
    yield f"function {function.__qualname__}"
    yield text
    if not text or function.__name__ == "<lambda>":
        # Several may stand in one line, or none is known: what it was compiled to tells them apart.
        yield from _code(code)
    for given in (function.__defaults__, function.__kwdefaults__):
        yield from inner(given)
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        yield f"captured {name}"
        try:
            yield from inner(cell.cell_contents)
        except ValueError:
            yield "nothing yet"
    for name in sorted(set(_names(code))):
        used = function.__globals__.get(name)
        of_module = isinstance(used, types.FunctionType) and used.__module__ == function.__module__
        constant = name in function.__globals__ and isinstance(used, (*_PLAIN, list, tuple, dict, np.ndarray))
        if of_module or constant:
            yield f"uses {name}"
            yield from inner(used)


def _code(code: types.CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    yield repr(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _code(constant)
        else:
            yield repr(constant)


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _text_of(value: Any) -> str:
    try:
        lines = textwrap.dedent(inspect.getsource(value)).splitlines()
    except (OSError, TypeError):
        return ""
    return "\n".join(line.rstrip() for line in lines if line.strip())


def _array(value: Any) -> Iterator[str]:
    try:
        array = np.ascontiguousarray(value)
    except Exception:
        yield f"array {type(value).__qualname__}"
        return
    if array.dtype.hasobject:
        yield f"array {array.shape}"
    else:
        digest = hashlib.blake2b(array.reshape(-1).view(np.uint8).data, digest_size=16).hexdigest()
        yield f"array {array.dtype} {array.shape} {digest}"
