"""Muon: momentum that is replaced by nearly the closest orthogonal matrix before it is applied.

K. Jordan and others, "Muon: An optimizer for hidden layers in neural networks" (2024): the quintic
Newton-Schulz iteration and its coefficients are theirs.
"""

import torch

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5
MOMENTUM = 0.95
DECAY = 0.02


def orthogonalize(matrix):
    a, b, c = COEFFICIENTS
    x = matrix.bfloat16()
    is_tall = x.shape[0] > x.shape[1]
    if is_tall:
        x = x.T
    x = x / (x.norm() + 1e-7)
    for _ in range(STEPS):
        gram = x @ x.T
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return (x.T if is_tall else x).float()


class Muon:
    """Updates matrices; `mine(i)` says which of them this process orthogonalizes.

    `updates` is one flat tensor, shared by all processes, through which they exchange results.
    """

    def __init__(self, matrices, updates, mine, wait):
        self._matrices, self._mine, self._wait = matrices, mine, wait
        self._momentum = [torch.zeros_like(p) for p in matrices]
        sizes = [p.numel() for p in matrices]
        self._updates = [part.view_as(p) for part, p in zip(updates.split(sizes), matrices)]

    @torch.no_grad()
    def step(self, rate):
        for i, (p, momentum) in enumerate(zip(self._matrices, self._momentum)):
            momentum.mul_(MOMENTUM).add_(p.grad)
            if self._mine(i):
                ahead = p.grad.add(momentum, alpha=MOMENTUM)
                self._updates[i].copy_(orthogonalize(ahead))
        self._wait()
        for p, update in zip(self._matrices, self._updates):
            stretch = max(1, p.shape[0] / p.shape[1]) ** 0.5
            p.mul_(1 - rate * DECAY).add_(update, alpha=-rate * stretch)
        self._wait()
