"""Takes a notebook's function to another process as text: the cell that defines it, and what that cell refers to.

cloudpickle, which pickles functions by value, cannot rebuild a TypedDict, which most states are.
"""

import ast
import importlib
import linecache
import pickle
import symtable
import sys
import types
from dataclasses import dataclass

_ADVICE = (
    "define it at the top level of a cell, outside any function, and leave connections and compiled graphs to be made "
    "in the other process"
)


@dataclass(frozen=True)
class Text:
    """A function as the text that defines it, with the text or the pickled value of every global it refers to.

    What the function's own module defines goes as text, imported things and plain values as pickles.
    """

    module: str
    name: str
    text: str
    values: dict[str, bytes]

    @classmethod
    def of(cls, function):
        """Take `function` apart. Raises ValueError when its text, or something it refers to, cannot be found."""
        scope, definitions, texts, values = function.__globals__, _definitions(function), {}, {}

        def collect(name):
            if name in texts or name in values or name not in scope:
                return
            if (data := _pickled(scope[name], function.__module__)) is not None:
                values[name] = data
            elif name in definitions:
                text = ast.unparse(definitions[name])
                texts[name] = None  # under way: functions may refer to each other
                for other in sorted(_globals(symtable.symtable(text, name, "exec"))):
                    collect(other)
                del texts[name]
                texts[name] = text  # after what it needs
            else:
                raise ValueError(f"{name!r} cannot go to another process: {_ADVICE}")

        if scope.get(function.__name__) is not function:
            raise ValueError(f"{function.__qualname__!r} cannot go to another process: {_ADVICE}")
        collect(function.__name__)
        return cls(function.__module__, function.__name__, "\n".join(texts.values()), values)

    def load(self):
        """Define the function in this process and return it."""
        scope = vars(sys.modules.setdefault(self.module, types.ModuleType(self.module)))
        scope.update({name: pickle.loads(data) for name, data in self.values.items()})
        exec(compile(self.text, f"<text of {self.name}>", "exec"), scope)
        return scope[self.name]


def _definitions(function):
    """The top-level statements that bind names in the function's notebook, or in its file; the latest one counts."""
    texts = ["".join(linecache.getlines(function.__code__.co_filename))]
    if function.__module__ == "__main__":
        texts += getattr(sys.modules["__main__"], "In", [])  # IPython's cells so far
    found = {}
    for text in texts:
        try:
            statements = ast.parse(text).body
        except SyntaxError:
            continue
        found.update({name: statement for statement in statements for name in _bound(statement)})
    return found


def _bound(statement):
    """The names that a top-level statement binds."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [statement.name]
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return [(alias.asname or alias.name).partition(".")[0] for alias in statement.names]
    if isinstance(statement, (ast.Assign, ast.AnnAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]
    return []


def _globals(table):
    """The names that a statement, or a function or class inside it, takes from the module around it."""
    outermost = table.get_type() == "module"
    used = {s.get_name() for s in table.get_symbols() if (s.is_referenced() if outermost else s.is_global())}
    return used.union(*map(_globals, table.get_children()))


def _pickled(value, module):
    """The value's pickle, or None where that fails or would ask the other process for a name of this `module`."""
    try:
        data = pickle.dumps(_Module(value.__name__) if isinstance(value, types.ModuleType) else value)
    except Exception:
        return None
    return None if module.encode() in data else data


class _Module:
    """Pickles as a module, to be imported in the other process."""

    def __init__(self, name):
        self.name = name

    def __reduce__(self):
        return importlib.import_module, (self.name,)
