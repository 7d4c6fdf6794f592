"""Everything of opspan's that user code calls, inside code that torch.compile and torch.export make.

Each case runs in a fork, so that its call is the first one ever of opspan in a process. It is told apart from the same
code without opspan by its graphs, which must be the same ones, and by its results. Prints one line for each difference,
and how many cases there were; `later` imports torch after opspan.
"""

import os
import sys
import textwrap
import traceback

if "later" in sys.argv:
    from opspan import annotate, mark, record_function  # noqa: F401

    if "used" in sys.argv:
        with annotate("before torch"):
            mark("before torch")

import torch

BODIES = {
    "with": 'with opspan.annotate("a"): x = x * 2',
    "with everything": 'with opspan.annotate("a", color="red", category="c", payload=3): x = x * 2',
    "with a tensor": 'with opspan.annotate("a", payload=x.sum()): x = x * 2',
    "with a name that is put together": 'with opspan.annotate(f"a {x.shape[0]}"): x = x * 2',
    "within itself": 'a = opspan.annotate("a")\nwith a:\n    with a: x = x * 2',
    "in a loop": 'for i in range(3):\n    with opspan.annotate(f"a {i}"): x = x * 2',
    "an exception": 'try:\n    with opspan.annotate("a"): raise ValueError\nexcept ValueError: x = x * 2',
    "record_function": 'with opspan.record_function("a", "of mine"): x = x * 2',
    "autograd_profiler": 'with opspan.autograd_profiler.record_function("a"): x = x * 2',
    "mark": 'opspan.mark("a"); x = x * 2',
    "record": "with opspan.record(): x = x * 2",
    "record, all of it": 'with opspan.record(record_shapes=True, modules=True, path="p"): x = x * 2',
    "imported inside": 'from opspan import annotate\nwith annotate("a"): x = x * 2',
    "decorated inside": 'x = opspan.annotate("a")(lambda v: v * 2)(x)',
    "decorated inside, without a name": "x = opspan.annotate(lambda v: v * 2)(x)",
    "decorated": "x = decorated(x)",
    "decorated with a name": "x = named(x)",
    "a decorated generator": "x = sum(generator(x))",
    "a method": "x = Thing().work(x)",
    "shared": "with shared: x = x * 2",
    "shared within itself": "with shared:\n    with shared: x = x * 2",
    "torch's record_function": 'with torch.profiler.record_function("a"): x = x * 2',
}
for tool in ("nvtx", "itt"):
    BODIES |= {
        f"{tool} push": f'opspan.{tool}.range_push("a"); x = x * 2; opspan.{tool}.range_pop()',
        f"{tool} range": f'with opspan.{tool}.range("a {{}}", 1): x = x * 2',
        f"{tool} range, as a decorator": f'x = opspan.{tool}.range("a")(lambda v: v * 2)(x)',
        f"{tool} range, decorated": f"x = {tool}_ranged(x)",
        f"{tool} range, shared": f"with {tool}_shared: x = x * 2",
        f"{tool} mark": f'opspan.{tool}.mark("a"); x = x * 2',
        f"{tool} is_available": f"x = x * 2\nif opspan.{tool}.is_available(): opspan.{tool}.mark('a')",
    }
BODIES["nvtx start"] = 'r = opspan.nvtx.range_start("a"); x = x * 2; opspan.nvtx.range_end(r)'

# The same in torch's words, by how cases' names end. What this torch cannot compile there need not compile with ours.
TORCHS = {
    "an exception": 'try:\n    with torch.profiler.record_function("a"): raise ValueError\nexcept ValueError: x * 2',
    "shared": "with torchs_shared: x = x * 2",
    "shared within itself": "with torchs_shared: x = x * 2",
    "decorated inside, without a name": "x = x * 2 if not isinstance(lambda v: v, str) else x",
}
# In compiled code record() is ignored, as torch's profile() is; but not by the Dynamo of 2.4. That Dynamo cannot make
# an object of a class with a `__new__`, such as record_function.
FROM_2_5 = ("record", "record, all of it", "record_function", "autograd_profiler")
PLAIN = {
    "in a loop": "for i in range(3): x = x * 2",
    "a decorated generator": "x = sum(bare(x))",
    "with a tensor": "x.sum(); x = x * 2",
}
# Statements outside of the compiled code, run only for the cases that use them: they must not count as an earlier call.
BEFORE = {
    "decorated": "@opspan.annotate\ndef decorated(v): return v * 2",
    "named": '@opspan.annotate("a")\ndef named(v): return v * 2',
    "generator": "@opspan.annotate\ndef generator(v):\n    yield v\n    yield v * 2",
    "bare": "def bare(v):\n    yield v\n    yield v * 2",
    "Thing": "class Thing:\n    @opspan.annotate\n    def work(self, v): return v * 2",
    "shared": 'shared = opspan.annotate("shared")',
    "torchs_shared": 'torchs_shared = torch.profiler.record_function("shared")',
    "nvtx_ranged": '@opspan.nvtx.range("a")\ndef nvtx_ranged(v): return v * 2',
    "itt_ranged": '@opspan.itt.range("a")\ndef itt_ranged(v): return v * 2',
    "nvtx_shared": 'nvtx_shared = opspan.nvtx.range("a")',
    "itt_shared": 'itt_shared = opspan.itt.range("a")',
}


class Model(torch.nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self.inner = forward

    def forward(self, x):
        return self.layer(self.inner(x))


def function(body, name):
    scope = {"torch": torch}
    before = [text for word, text in BEFORE.items() if word in body]
    lines = [
        "import opspan, opspan.autograd_profiler",
        *before,
        "def work(x):",
        *(f"    {line}" for line in body.splitlines()),
        "    return x",
    ]
    exec(compile("\n".join(lines), f"<{name}>", "exec"), scope)
    return scope["work"]


def compiled(work):
    """The graphs of a compiled model, and what it computes."""
    torch._dynamo.reset()
    graphs = []

    def backend(graph, _inputs):
        graphs.append(graph.code)
        return graph.forward

    torch.manual_seed(1)
    model = torch.compile(Model(work), backend=backend, fullgraph=True)
    results = [model(torch.ones(3, 2)), model(torch.ones(3, 2))]
    torch.stack(results).sum().backward()
    return graphs, torch.stack(results)


def exported(work):
    program = torch.export.export(Model(work), (torch.ones(3, 2),), strict=True)
    return [program.graph_module.code], torch.zeros(())


def is_beyond_this_torch(name, make):
    body = next((body for end, body in TORCHS.items() if name.endswith(end)), None)
    if body is None:
        return False
    try:
        make(function(body, "torch's"))
    except torch._dynamo.exc.Unsupported:
        return True
    return False


def check(name, make):
    body = BODIES[name]
    try:
        graphs, results = make(function(body, name))
    except torch._dynamo.exc.Unsupported:
        if is_beyond_this_torch(name, make):
            return None
        raise
    expected_graphs, expected = make(function(PLAIN.get(name, "x = x * 2"), "plain"))
    if graphs != expected_graphs:
        return f"other graphs: {graphs}, not {expected_graphs}"
    if not torch.equal(results, expected):
        return f"other results: {results}"
    return None


def fork(name, make):
    child = os.fork()
    if child:
        return child
    try:
        difference = check(name, make)
    except BaseException as error:  # noqa: BLE001  # whatever it is, it is the finding
        text = "".join(traceback.format_exception(error))
        difference = f"{type(error).__name__}\n{textwrap.indent(text, '    ')}"
    if difference:
        print(f"{name}, {make.__name__}: {difference}")
    sys.stdout.flush()
    os._exit(1 if difference else 0)


def passed(cases):
    """How many; as many at a time as there are processors."""
    running, good = set(), 0
    while cases or running:
        while cases and len(running) < len(os.sched_getaffinity(0)):
            running.add(fork(*cases.pop()))
        child, status = os.wait()
        running.discard(child)
        good += status == 0
    return good


def main():
    import torch._dynamo  # once, for all forks

    asked = {text.removeprefix("only=") for text in sys.argv if text.startswith("only=")}
    is_old = torch.__version__.startswith("2.4.")
    chosen = [name for name in BODIES if (name in asked or not asked) and not (is_old and name in FROM_2_5)]
    makers = [compiled] if "compiled" in sys.argv else [compiled, exported]
    cases = [(name, make) for name in chosen for make in makers]
    count = len(cases)
    print(passed(cases), "of", count)


if __name__ == "__main__":
    main()
