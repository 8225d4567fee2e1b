"""Rates, lengths of documents and RoPE's base, as functions of training's progress."""

import random

# Until which share of the time documents of which length are drawn, and how often.
CURRICULUM = ("0.12:256x2,512x2,1024x1;0.4:256x1,512x2,1024x3,2048x2;"
              "0.75:512x2,1024x3,2048x3,4096x2;1:512x2,1024x3,2048x3,4096x2,8192x1.5")
DECAY_SHARE = 0.25  # of the time, at the end
RATE_MIN_RATIO = 0.03
WARM_UP_STEPS = 100
SKIP_SHARE = 0.3  # of the steps leave positions out (PoSE), so that far ones are met early
SKIP_FROM = 0.05  # of the time


def parse_curriculum(text):
    """[(until, {tokens: weight})]"""
    stages = []
    for stage in text.split(";"):
        until, lengths = stage.split(":")
        pairs = [item.split("x") for item in lengths.split(",")]
        stages.append((float(until), {int(tokens): float(weight) for tokens, weight in pairs}))
    return stages


class Schedule:
    """The settings of each step of a training. `options` are train.py's."""

    def __init__(self, options, first_step, first_rope_base):
        self._options, self._stages = options, parse_curriculum(options.curriculum)
        self._first_step, self._first_rope_base = first_step, first_rope_base

    def progress(self, step, seconds):
        """Progress from 0 to 1."""
        if self._options.steps:
            return (step - self._first_step) / self._options.steps
        return seconds / (3600 * self._options.hours)

    def rate(self, step, progress):
        """The factor of the learning rate, at most 1."""
        warm = min(1.0, (step - self._first_step + 1) / self._options.warm_up)
        return warm * min(1.0, max(RATE_MIN_RATIO, (1 - progress) / DECAY_SHARE))

    def lengths(self, step, progress):
        """The tokens of this step's documents, and how many positions they leave out at most."""
        choose = random.Random(step)
        lengths = next((lengths for until, lengths in self._stages if progress < until),
                       self._stages[-1][1])
        tokens = choose.choices(list(lengths), list(lengths.values()))[0]
        skip = progress > SKIP_FROM and choose.random() < SKIP_SHARE
        far = min(choose.choice((2, 4, 8)) * tokens, self._options.context - tokens) if skip else 0
        return tokens, max(0, far)

    def rope_base(self, progress):
        """Grows in equal ratios from the weights' base to --rope-base."""
        first, last, until = (self._first_rope_base, self._options.rope_base,
                              self._options.rope_base_until)
        if not last:
            return first
        way = min(1.0, progress / until) if until else 1.0
        return first ** (1 - way) * last ** way
