"""A DataLoader with two worker processes, forked while ops are being labelled."""

import torch
from session import run
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((3,), float(index)).square()


def main() -> None:
    model = torch.nn.Linear(3, 1)
    for batch in DataLoader(Squares(), batch_size=2, num_workers=2, multiprocessing_context="fork"):
        model(batch).sum().backward()


if __name__ == "__main__":
    run(main)
