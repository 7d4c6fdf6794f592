"""Ten thousand times on and off, while two other threads run ops throughout. Prints what is held at each thousand."""

import json
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch

import opspan

CYCLES = 10_000
# emit_itt remembers the last 65,536 forward ops of a thread; memory grows until then, and must not grow later. A loop
# of the workers has two ops.
TURNS = 65_536 // 2


class Worker(threading.Thread):
    def __init__(self, done: threading.Event) -> None:
        super().__init__()
        self.done, self.turns = done, 0

    def run(self) -> None:
        weight = torch.randn(4, requires_grad=True)
        while not self.done.is_set():
            (weight * 2).sum().backward()
            self.turns += 1


def cycle(number: int, folder: str) -> None:
    which = number % 3
    if which == 0:
        session = opspan.emit_nvtx(record_shapes=number % 2 == 0)
    elif which == 1:
        session = opspan.emit_itt(record_shapes=number % 2 == 0)
    else:
        session = opspan.record(record_shapes=number % 2 == 0, path=folder, add=True)
    with session:
        torch.ones(2).add(1)


def held() -> dict[str, int]:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    # Anonymous memory: what was allocated and not given back. Pages of capture files come and go with the files.
    return {"kilobytes": int(status["RssAnon"].split()[0]), "files": len(list(Path("/proc/self/fd").iterdir()))}


def main() -> None:
    torch.set_num_threads(1)
    sys.setswitchinterval(1e-5)  # else most of the time goes by waiting for the workers to let go of the interpreter
    done = threading.Event()
    workers = [Worker(done) for _ in range(2)]
    for worker in workers:
        worker.start()
    with opspan.emit_itt():
        while min(worker.turns for worker in workers) < TURNS:
            time.sleep(0.01)
    folder = tempfile.mkdtemp()
    looks = []
    for number in range(1, CYCLES + 1):
        cycle(number, folder)
        if number % 300 == 0:
            shutil.rmtree(folder)
        if number % 1000 == 0:
            looks.append(held())
    done.set()
    for worker in workers:
        worker.join()
    shutil.rmtree(folder, ignore_errors=True)
    json.dump(looks, sys.stdout)


if __name__ == "__main__":
    main()
