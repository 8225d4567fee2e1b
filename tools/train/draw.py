"""Random choices that are the same on every machine and every Python.

Of Python's random module only seeding by an integer and random() promise to stay as they are, so
everything here is made of random() alone.
"""

import random


class Draw:
    """A seeded source of choices."""

    def __init__(self, seed):
        self._next = random.Random(seed).random

    def below(self, n):
        """An integer in [0, n)."""
        return int(self._next() * n)

    def between(self, low, high):
        """An integer in [low, high]."""
        return low + self.below(high - low + 1)

    def uniform(self, low, high):
        return low + (high - low) * self._next()

    def chance(self, probability):
        return self._next() < probability

    def pick(self, items):
        return items[self.below(len(items))]

    def pick_weighted(self, weights):
        """A key of the dictionary `weights`, as often as its value says."""
        rest = self._next() * sum(weights.values())
        for key, weight in weights.items():
            rest -= weight
            if rest < 0:
                return key
        return key

    def sample(self, items, n):
        """n different items, in random order."""
        left = list(items)
        return [left.pop(self.below(len(left))) for _ in range(min(n, len(left)))]

    def shuffled(self, items):
        return self.sample(items, len(items))
