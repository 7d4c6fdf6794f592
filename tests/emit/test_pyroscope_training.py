"""emit_pyroscope does no harm: training is the same to the bit, whatever the server, the compiler or a fork does."""

from __future__ import annotations

import re

import pytest

from emit.beside_agent import program
from pyroscope_server import NEVER, nobody, serving

pytest.importorskip("torch")
pytest.importorskip("pyroscope")

TRAINING = """
def train(session):
    torch.manual_seed(0)
    model, x = nn.Sequential(Net(), nn.Dropout(.2)), torch.randn(64, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=.01)
    losses = []
    with session as labelled:
        for (batch,) in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), 8, shuffle=True):
            loss = model(batch).pow(2).mean()
            optimizer.zero_grad(); loss.backward(); optimizer.step()
            losses.append(loss.item().hex())
            if labelled: labelled.step()
    return losses
import contextlib, time
plain = train(contextlib.nullcontext())
agent(sys.argv[1], upload_interval=1)
print(train(opspan.emit_pyroscope()) == plain, told)
over = time.monotonic() + 1.5  # so that there is something to be sent
while time.monotonic() < over: train(contextlib.nullcontext())
print(train(opspan.emit_pyroscope()) == plain, told)
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["away", "500", "never", "200"])
def test_training_is_the_same_whatever_the_server_does(answer: str) -> None:
    status = {"500": 500, "never": NEVER, "200": 200, "away": 200}[answer]
    with serving((status, "")) as server:
        said = program(TRAINING, nobody() if answer == "away" else server.url)

    assert said.splitlines() == ["True set()"] * 2
    assert bool(server.requests) == (answer != "away")


@pytest.mark.slow
def test_compiled_models_are_neither_broken_nor_compiled_again() -> None:
    body = """
import torch._dynamo.utils
agent()
def train():
    torch._dynamo.reset(); torch._dynamo.utils.counters.clear(); torch.manual_seed(0)
    model = torch.compile(Net(), backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=.1)
    losses = []
    for number in range(4):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4) * number).sum(); loss.backward(); optimizer.step()
        losses.append(loss.item().hex())
    return losses, dict(torch._dynamo.utils.counters["stats"]), dict(torch._dynamo.utils.counters["graph_break"])
plain = train()
with opspan.emit_pyroscope(): labelled = train()
print(plain == labelled, set(most["phase"]), told)
"""
    assert re.fullmatch(r"True \{.*'(forward|backward|optimizer)'.*\} set\(\)\n", program(body))


def test_transforms_of_functions_give_the_same() -> None:
    body = """
import warnings; warnings.filterwarnings("ignore", ".*torch.cpu.amp.autocast", FutureWarning)  # of torch 2.4 itself
agent()
net = Net()
x = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
def loss(parameters, x): return torch.func.functional_call(net, parameters, (x,)).sum()
def all_of_it():
    parameters = dict(net.named_parameters())
    each = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, x)
    again = torch.utils.checkpoint.checkpoint(net, x.clone().requires_grad_(), use_reentrant=False).sum()
    return [*each.values(), *torch.autograd.grad(again, net.parameters())]
plain = all_of_it()
with opspan.emit_pyroscope(): labelled = all_of_it()
print(all(torch.equal(a, b) for a, b in zip(plain, labelled, strict=True)), told)
"""
    assert program(body) == "True set()\n"


def test_a_fork_does_nothing() -> None:
    body = """
agent()
with opspan.emit_pyroscope() as session:
    pid = os.fork()
    if not pid:
        most.clear()
        Net()(torch.ones(4)); session.step()
        os._exit(7 if most else 0)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), session.run_id in {one[2] for one in told})
    Net()(torch.ones(4))
    workers = torch.utils.data.DataLoader(torch.ones(6, 2), num_workers=1)
    print(sum(len(batch) for batch in workers))
print(told)
"""
    assert program(body, env={"PYTHONWARNINGS": "ignore"}).splitlines() == ["0 True", "6", "set()"]
