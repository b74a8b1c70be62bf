#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every program of the collection that tests/pallas/ is from: ported, with its lines in JAX and here, or the reason why not.
`pallas_lines.py` prints the table and fails when a program is neither; `pallas_lines.py --count DIR` counts the JAX side of
DIR/pallas_*.py anew and rewrites tests/pallas/programs.tsv.

Counted are the lines from the declaration of the grid (in JAX: the body's def) to the end of its execution, blank ones
and comments left out; what several programs share (a matmul's frame) counts for each of them on both sides.
"""
import ast
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "tests/pallas/programs.tsv"
HEAD = "program\tlines in JAX\twhy not ported"
SHARED = {"tests/pallas_tables_test.cc": "void matmul_program("}  # the frame of the matmuls


def code(lines):
    return sum(1 for line in lines if line.strip() and not line.strip().startswith(("//", "#")))


def jax_lines(directory):
    """program -> lines of its function, without docstring, decorator and def, with the helpers that it calls"""
    functions, programs = {}, []
    for path in sorted(pathlib.Path(directory).glob("pallas_*.py")):
        text = path.read_text()
        lines = text.split("\n")
        for node in ast.parse(text).body:
            if not isinstance(node, ast.FunctionDef):
                continue
            first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
            calls = {n.func.id for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
            functions[node.name] = (code(lines[first.lineno - 1:node.end_lineno]), calls)
            if any(isinstance(d, ast.Call) and getattr(d.func, "id", "") == "case" for d in node.decorator_list):
                programs.append(node.name)
    helpers = ("matmul", "accumulate", "on_last_k", "add_one")
    return {p: functions[p][0] + sum(functions[h][0] for h in helpers if h in functions[p][1] or h in ("accumulate", "on_last_k")
                                     and "matmul" in functions[p][1]) for p in programs}


def statement(lines, start):
    """Index past the statement that begins at `start`."""
    depth, end = 0, start
    while True:
        depth += sum(lines[end].count(c) for c in "({[") - sum(lines[end].count(c) for c in ")}]")
        end += 1
        if depth <= 0 and lines[end - 1].rstrip().endswith((";", "}")):
            return end


def lines_here(name):
    """(file, lines) of the first grid that expects the outputs of that program; None where no test names it."""
    for path in sorted((ROOT / "tests").glob("pallas_*_test.cc")):
        relative, text = str(path.relative_to(ROOT)), path.read_text()
        lines = text.split("\n")
        places = [n for n, line in enumerate(lines) if re.search(rf'\("{name}"|\? "{name}"|: "{name}"|^ *"{name}"', line)
                  and "Grid " not in line]
        if not places:
            continue
        at = places[0]
        call = next((n for p in places for n in (p - 1, p) if lines[n].lstrip().startswith("matmul_program<")), None)
        if call is not None:
            frame = next(n for n, line in enumerate(lines) if SHARED[relative] in line)
            body = next(n for n in range(frame, len(lines)) if "Grid grid(" in lines[n])
            done = next(n for n in range(body, len(lines)) if "execute(" in lines[n])
            return relative, code(lines[body:statement(lines, done)]) + statement(lines, call) - call
        # Of a file read outside of a grid's own helper the variable says which grid it is.
        variable = (re.search(rf'(\w+)\("{name}"\)', lines[at]) or re.search(r"PallasProgram (\w+)\(", lines[at])).group(1)
        use = next(n for n in range(at + 1, len(lines)) if re.search(rf"\b{variable}\.(in|out)<|\({variable}, ", lines[n]))
        if re.search(rf"\({variable}, ", lines[use]):  # a helper of the test takes it
            helper = re.search(rf"(\w+)(<[^>]*>)?\({variable}, ", lines[use]).group(1)
            use = next(n for n, line in enumerate(lines) if re.search(rf"void {helper}\(", line))
        begin = next(n for n in range(use, len(lines)) if re.search(r"\bGrid \w+\(", lines[n]))
        done = next(n for n in range(begin, len(lines)) if re.search(r"execute\(|\.run\(|\.check\(", lines[n]))
        return relative, code(lines[begin:statement(lines, done)])
    return None


def rows():
    return [line.split("\t") for line in TABLE.read_text().split("\n")[1:] if line]


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--count":
        reasons = {row[0]: row[2] for row in rows()} if TABLE.exists() else {}
        counted = jax_lines(sys.argv[2])
        TABLE.write_text("\n".join([HEAD, *(f"{p}\t{n}\t{reasons.get(p, '-')}" for p, n in counted.items())]) + "\n")
    wrong, ported, theirs, ours = 0, 0, 0, 0
    print(f"{'program':<26}{'JAX':>5}{'kref':>6}  where, or why not")
    for name, jax, reason in rows():
        here = lines_here(name)
        if here is None and reason == "-":
            wrong += 1
            print(f"{name:<26}{jax:>5}{'':>6}  NEITHER PORTED NOR REFUSED")
            continue
        if here is None:
            print(f"{name:<26}{jax:>5}{'-':>6}  {reason}")
            continue
        ported, theirs, ours = ported + 1, theirs + int(jax), ours + here[1]
        print(f"{name:<26}{jax:>5}{here[1]:>6}  {here[0]}")
    print(f"{ported} programs: {theirs} lines in JAX, {ours} here")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
