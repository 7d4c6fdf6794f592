"""Sessions started in one thread and stopped in another, while a third runs ops throughout."""

import threading

import torch
from session import arguments, sessions


def work(done: threading.Event) -> None:
    while not done.is_set():
        torch.ones(4).add(1).sum()


def main() -> None:
    done = threading.Event()
    worker = threading.Thread(target=work, args=(done,))
    worker.start()
    entered = sessions(arguments())
    starter = threading.Thread(target=entered.__enter__)
    starter.start()
    starter.join()
    x = torch.randn(4, 4, requires_grad=True)
    for _ in range(20):
        x.mul(2).sum().backward()
    stopper = threading.Thread(target=entered.__exit__, args=(None, None, None))
    stopper.start()
    stopper.join()
    done.set()
    worker.join()


if __name__ == "__main__":
    main()
