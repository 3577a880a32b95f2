"""Every fault that can be put into a source file: one small change each, as somebody might have mistyped it.

A change keeps the type where it can, since a fault that ends in a TypeError is noticed by any test and proves
nothing: an operand is dropped rather than another operator taken, and what a function gives back follows its
annotation. Left out: what is for people only (words with a blank, logging), annotations, decorators, and names.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

SWAPS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
TURNS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt,
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.LShift: ast.RShift,
    ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr,
}  # fmt: skip
NUMERIC: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add}
"""Only where one side is a number for certain: sets, lists and texts have one of the two."""
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
METHODS = {"startswith": "endswith", "endswith": "startswith", "issubset": "issuperset", "issuperset": "issubset"}
EMPTY = {
    "bool": ("True", "False"), "int": ("0", "1"), "float": ("0.0",), "str": ("''",), "dict": ("{}",),
    "list": ("[]",), "tuple": ("()",), "frozenset": ("frozenset()",), "set": ("set()",), "Iterator": ("iter(())",),
    "Sequence": ("()",), "Iterable": ("()",), "Mapping": ("{}",), "CpuSet": ("CpuSet()",), "NodeSet": ("NodeSet()",),
}  # fmt: skip
"""The annotation of a function -> what it might give back instead."""
PYTHON = ".py"
NOBODY = "()"  # an `except` of no class: catches nothing
LOGGERS = frozenset({"LOG", "_log", "log", "logger", "logging"})


@dataclass(frozen=True)
class Mutant:
    """One change of one file.

    Attributes:
        path: of the file, from the root of the tree.
        function: that it is in, with its class; "" for the module.
        operator: the kind of change.
        line: of its beginning, counted from one.
        span: first and last line of the statement around it; of one with a body, of its head.
        start: offset in the file, in bytes.
        end: the offset behind.
        before: what stands there, as one line.
        after: what is put there.
        nth: among the same changes of the same function: 0, 1, ...
    """

    path: str
    function: str
    operator: str
    line: int
    span: tuple[int, int]
    start: int
    end: int
    before: str
    after: str
    nth: int = 0

    @property
    def name(self) -> str:
        """The same in every commit that has not changed this place."""
        return f"{self.path}::{self.function}::{self.operator}::{self.before} -> {self.after}::{self.nth}"

    def apply(self, source: bytes) -> bytes:
        """The file with the change.

        Raises:
            SyntaxError: the file is one of Python, and with the change it is not.
        """
        changed = source[: self.start] + self.after.encode() + source[self.end :]
        if self.path.endswith(PYTHON):
            compile(changed, self.path, "exec", dont_inherit=True)
        return changed


def mutants(path: str, source: bytes) -> list[Mutant]:
    """All mutants of a file, in its order. A few are no Python, which `Mutant.apply` tells."""
    found: list[Mutant] = []
    seen: dict[tuple[str, str, str, str], int] = {}
    for mutant in sorted(_Walk(path, source).found(), key=lambda each: (each.start, each.operator, each.after)):
        what = (mutant.function, mutant.operator, mutant.before, mutant.after)
        seen[what] = nth = seen.get(what, -1) + 1
        found.append(Mutant(**{**vars(mutant), "nth": nth}))
    return found


class _Walk:
    """One file, walked once."""

    def __init__(self, path: str, source: bytes) -> None:
        self._path, self._source = path, source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def found(self) -> Iterator[Mutant]:
        """Every change."""
        yield from self._walk(ast.parse(self._source), "", (), (1, 1))

    def _walk(
        self, node: ast.AST, function: str, returns: tuple[str, ...], span: tuple[int, int]
    ) -> Iterator[Mutant]:
        if isinstance(node, ast.stmt):
            span = _span(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            function = f"{function}.{node.name}".lstrip(".")
            returns = () if isinstance(node, ast.ClassDef) else _others(node.returns)
        for place, operator, after in changes(node, returns):
            end_line, end_column = place.end_lineno or place.lineno, place.end_col_offset or 0
            yield Mutant(
                path=self._path, function=function, operator=operator, line=place.lineno, span=span,
                start=self._starts[place.lineno - 1] + place.col_offset, end=self._starts[end_line - 1] + end_column,
                before=ast.unparse(place), after=after,
            )  # fmt: skip
        for child in _children(node):
            yield from self._walk(child, function, returns, span)


def _span(statement: ast.stmt) -> tuple[int, int]:
    """Its lines; of one with a body, those before the body."""
    last = statement.end_lineno or statement.lineno
    match statement:
        case ast.Match():
            last = statement.subject.end_lineno or last
        case ast.stmt(body=[ast.stmt(lineno=first), *_]):  # type: ignore[misc] # of the kinds that have one
            last = first - 1
        case _:
            pass
    return statement.lineno, max(last, statement.lineno)


Changes = Iterator[tuple[ast.expr | ast.stmt, str, str]]
"""Of a node: (place, operator, text in its stead)."""


def changes(node: ast.AST, returns: tuple[str, ...]) -> Changes:
    """What may be changed at a node, in a function that might give back `returns` as well."""
    match node:
        case ast.If() | ast.While() | ast.IfExp():
            yield from _condition(node.test)
        case ast.comprehension():
            for test in node.ifs:
                yield from _condition(test)
        case ast.Return(value=ast.expr() as value):
            yield from ((value, "return", text) for text in returns if text != ast.unparse(value))
        case ast.For() | ast.AsyncFor():
            yield node.iter, "loop", "()"
        case ast.ExceptHandler(type=ast.expr()):
            yield from _except(node)
        case ast.expr():
            yield from _expression(node)
        case _:
            pass
    if isinstance(node, ast.stmt) and _removable(node):
        yield node, "statement", "pass"


def _expression(node: ast.expr) -> Changes:
    match node:
        case ast.Compare():
            yield from _compare(node)
        case ast.BoolOp():
            yield from _boolean(node)
        case ast.UnaryOp():
            yield node, "unary", f"({ast.unparse(node.operand)})"
        case ast.BinOp():
            yield from _arithmetic(node)
        case ast.Constant():
            yield from ((node, "constant", text) for text in _constants(node))
        case ast.Call():
            yield from _call(node)
        case _:
            pass


def _except(node: ast.ExceptHandler) -> Changes:
    match node.type:
        case ast.Tuple() as types:
            for left_out in types.elts:
                rest = [ast.unparse(each) for each in types.elts if each is not left_out]
                yield types, "except", f"({', '.join(rest)},)"
        case ast.expr() as one:
            yield one, "except", NOBODY
        case _:
            pass


def _compare(node: ast.Compare) -> Changes:
    for index, operator in enumerate(node.ops):
        for table in (SWAPS, TURNS):
            if type(operator) in table:
                other = [*node.ops[:index], table[type(operator)](), *node.ops[index + 1 :]]
                text = ast.unparse(ast.Compare(left=node.left, ops=other, comparators=node.comparators))
                yield node, "compare", f"({text})"


def _boolean(node: ast.BoolOp) -> Changes:
    other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    yield node, "boolean", f"({ast.unparse(ast.BoolOp(op=other, values=node.values))})"
    for left_out in node.values:
        rest = [each for each in node.values if each is not left_out]
        text = ast.unparse(rest[0] if len(rest) == 1 else ast.BoolOp(op=node.op, values=rest))
        yield node, "operand", f"({text})"


def _arithmetic(node: ast.BinOp) -> Changes:
    text = isinstance(node.left, ast.Constant | ast.JoinedStr) and not _number(node.left)
    if text or isinstance(node.right, ast.JoinedStr):
        return
    for operand in (node.left, node.right):
        yield node, "operand", f"({ast.unparse(operand)})"
    tables = [ARITHMETIC, NUMERIC] if _number(node.left) or _number(node.right) else [ARITHMETIC]
    for table in tables:
        if type(node.op) in table:
            other = ast.BinOp(left=node.left, op=table[type(node.op)](), right=node.right)
            yield node, "arithmetic", f"({ast.unparse(other)})"


def _number(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in {"len", "int", "sum", "float"}
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def _condition(test: ast.expr) -> Changes:
    negated = isinstance(test, ast.UnaryOp) or (isinstance(test, ast.Compare) and len(test.ops) == 1)
    if not negated:  # else told by the operators of comparison and of `not`
        yield test, "condition", f"(not ({ast.unparse(test)}))"
    for always in ("True", "False"):
        if always != ast.unparse(test):
            yield test, "condition", always


def _constants(node: ast.Constant) -> tuple[str, ...]:
    match node.value:
        case bool():
            return (str(not node.value),)
        case int():
            return (str(node.value + 1), *((str(node.value - 1),) if node.value in {1, 2} else ()))
        case float():
            return (repr(node.value * 2 or 1.0),)
        case str() as text if text and not any(character.isspace() for character in text):
            return (repr(text + "x"),)
        case _:
            pass
    return ()


def _call(node: ast.Call) -> Changes:
    match node.func:
        case ast.Name(id=name) if name in NAMES:
            yield node.func, "call", NAMES[name]
        case ast.Name(id="sorted") if not node.keywords:
            yield node.func, "call", "list"
        case ast.Attribute(attr=name, value=value) if name in METHODS:
            yield node.func, "call", f"{ast.unparse(value)}.{METHODS[name]}"
        case ast.Name(id="suppress") | ast.Attribute(attr="suppress"):
            yield node, "except", f"{ast.unparse(node.func)}()"
        case _:
            pass
    if isinstance(node.func, ast.Name) and node.func.id in {"sorted", "min", "max", "replace"}:
        for left_out in node.keywords:  # these go on without
            rest = [each for each in node.keywords if each is not left_out]
            yield node, "argument", ast.unparse(ast.Call(func=node.func, args=node.args, keywords=rest))


def _removable(node: ast.stmt) -> bool:
    match node:
        case ast.Expr(value=ast.Constant()):
            return False  # a docstring
        case ast.Expr() | ast.AugAssign() | ast.Raise() | ast.Continue() | ast.Delete() | ast.Return(value=None):
            return True
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return True  # a name would be missed by whoever reads it
        case _:
            pass
    return False


def _others(annotation: ast.expr | None) -> tuple[str, ...]:
    match annotation:
        case ast.BinOp(op=ast.BitOr(), right=ast.Constant(value=None)):
            return ("None",)
        case ast.Subscript(value=ast.Name(id=name)) | ast.Name(id=name):
            return EMPTY.get(name, ())
        case _:
            pass
    return ()


def _children(node: ast.AST) -> Iterable[ast.AST]:
    """What is walked below a node: no annotation, decorator, logging or text for people."""
    found: Iterable[ast.AST] = ast.iter_child_nodes(node)
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            defaults = [each for each in (*node.args.defaults, *node.args.kw_defaults) if each is not None]
            found = (*defaults, *node.body)
        case ast.ClassDef():
            found = node.body
        case ast.AnnAssign():
            found = () if node.value is None else (node.value,)
        case ast.JoinedStr() | ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.Expr(value=ast.Constant()):
            found = ()  # inside of an f-string, Python 3.11 gives wrong places
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))) if name in LOGGERS:
            found = ()
        case ast.Assign(targets=[ast.Name(id=name)]) if name.startswith("__"):
            found = ()
        case ast.Raise(exc=ast.Call(args=args)):
            found = args
        case _:
            pass
    return found
