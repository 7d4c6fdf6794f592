"""Two threads of the user's own, each with a model: sequence numbers repeat, only the thread tells them apart."""

import threading

import torch
from session import run


def train(size: int) -> None:
    model = torch.nn.Linear(size, size)
    for _ in range(5):
        model(torch.randn(2, size)).sum().backward()


def main() -> None:
    threads = [threading.Thread(target=train, args=(size,)) for size in (3, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    run(main)
