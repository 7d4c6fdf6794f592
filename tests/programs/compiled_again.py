"""Compiles with Dynamo alone: again for other sizes and types, with graph breaks, and once as it should be. Writes
what torch itself counted, as JSON."""

import json
import sys
from pathlib import Path

import torch
from torch._dynamo.utils import compile_times, counters, get_compilation_metrics

FIELDS = ("compile_id", "co_name", "co_filename", "co_firstlineno", "duration_us", "recompile_reason", "fail_type")


def resized(x):
    return torch.relu(x) * 2


def broken(x):
    y = torch.relu(x)
    print("a graph break")  # a break
    return y + 1


def branching(x):
    if x.sum() > 0:  # a break
        return x + 1
    return x - 1


def once(x):
    return torch.sin(x)


def failing(x):
    return torch.mm(x, torch.ones(7, 7))


def main(path):
    for x in (torch.ones(3), torch.ones(4), torch.ones(4, dtype=torch.float64)):
        torch.compile(resized, backend="eager")(x)
    for function in (broken, branching, once, once):
        torch.compile(function, backend="eager")(torch.ones(3))
    try:
        torch.compile(failing, backend="eager", fullgraph=True)(torch.ones(3, 3))
    except RuntimeError as error:
        print(type(error))
    metrics = [{name: getattr(one, name) for name in FIELDS} for one in get_compilation_metrics()]
    restarts = [sorted(one.restart_reasons or ()) for one in get_compilation_metrics()]
    times = dict(zip(*compile_times(repr="csv"), strict=True))
    counted = {name: dict(some) for name, some in counters.items()}
    values = {"metrics": metrics, "restarts": restarts, "times": times, "counters": counted}
    Path(path).write_text(json.dumps(values))


main(sys.argv[1])
