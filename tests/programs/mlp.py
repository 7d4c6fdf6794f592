"""Forward and backward of a small network, with a TensorList and a scalar on the way."""

import torch
from session import run


def main() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    x = torch.randn(5, 8)
    for _ in range(3):
        y = model(x)
        loss = torch.cat([y, y * 2.0]).pow(2).sum()
        loss.backward()
        model.zero_grad()


if __name__ == "__main__":
    run(main)
