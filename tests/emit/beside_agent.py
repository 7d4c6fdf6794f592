"""Programs beside the real agent of pyroscope-io, which hear all that it is told."""

from __future__ import annotations

from emit.running import python

# agent(url): starts it. told: (thread, key, value) of what the agent was told and not yet told to forget.
HEAD = """
import json, os, sys, threading, torch, opspan, pyroscope
from torch import nn

torch.set_num_threads(1)
told, most = set(), {}
add, remove = pyroscope.add_thread_tag, pyroscope.remove_thread_tag
def heard_add(key, value):
    told.add((threading.get_ident(), key, value))
    same = [one for one in told if one[:2] == (threading.get_ident(), key)]
    assert len(same) == 1, same
    most.setdefault(key, []).append(value)
    return add(key, value)
def heard_remove(key, value):
    told.remove((threading.get_ident(), key, value))
    return remove(key, value)
def agent(url="http://127.0.0.1:9", listen=True, **options):
    assert pyroscope.configure(application_name="train", server_address=url, gil_only=False, **options)
    if listen: pyroscope.add_thread_tag, pyroscope.remove_thread_tag = heard_add, heard_remove
def labels(): return {key: value for thread, key, value in told if thread == threading.get_ident()}
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.act, self.last = nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 2)
    def forward(self, x):
        y = self.first(x)
        return self.last(self.act(y) + y.detach())
"""


def program(body: str, *arguments: str, env: dict[str, str | None] | None = None) -> str:
    return python(HEAD + body, *arguments, env=env)
