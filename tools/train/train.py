#!/usr/bin/env python3
"""Trains the log-book model.

    train.py --hours 1.25 --out book.pt --warm OLD.pt OLD_TOKENS.pkl
    train.py --hours 1.25 --out book.pt --resume book.pt        (a checkpoint or an exported GGUF)

On a CPU two processes of one thread each share their gradients (one process with two threads is far
slower); on a GPU there is one process. Time (or with --steps their number) drives everything: the
lengths of the documents, how long attention is shown, the decay of the rates over the last part,
how far RoPE's base has come to --rope-base.
"""

import argparse
import random
import time

import torch
import torch.multiprocessing as mp
import torch.nn.functional as F

import batch
import bpe
import checkpoint
import logbook
import make_logbook
from evaluate import evaluate
from model import CONTEXT, Model
from muon import Muon
from prime import order_numbers, prime
from schedule import CURRICULUM, WARM_UP_STEPS, Schedule

MUON_RATE = 0.02
ADAM_RATE = 1.5e-3
ADAM_DECAY = 0.01
GRADIENT_NORM_MAX = 1.0
WAIT_MAX_S = 1800  # for the other process, which may be measuring, or dead
EVALUATED = {512: 12, 1024: 8}  # documents of each length, while training
EVALUATED_LAST = {512: 24, 1024: 24, 2048: 12, 4096: 8, 8192: 5}
EVALUATION_SEED = 50_000  # + HELD_OUT_FROM: not the documents of the committed book


class Team:
    """The processes that train one model: rank, size, and what they share."""

    def __init__(self, size, n_parameters, n_matrix_values, device):
        self.size, self.device = size, device
        self.gradients = [torch.zeros(n_parameters, device=device) for _ in range(size)]
        self.updates = torch.zeros(n_matrix_values, device=device)
        self.plan = torch.zeros(4, dtype=torch.float64)  # written by rank 0 before each step
        self._barrier = None
        if size > 1:
            for shared in (*self.gradients, self.updates, self.plan):
                shared.share_memory_()
            self._barrier = mp.Barrier(size)

    def wait(self):
        if self._barrier:
            self._barrier.wait(WAIT_MAX_S)


class Trainer:
    """One process of the team."""

    def __init__(self, rank, team, options, weights, step, rope_base):
        self.rank, self.team, self.options, self.step = rank, team, options, step
        self.tokenizer = bpe.load()
        self.model = Model(len(self.tokenizer.tokens), rope_base).to(team.device)
        self.model.load_state_dict(weights)
        self.parameters = list(self.model.parameters())
        matrices, others = split_parameters(self.model)
        self.muon = Muon(matrices, team.updates, lambda i: i % team.size == rank, team.wait)
        self.adam = torch.optim.AdamW(others, lr=0, betas=(0.9, 0.95), weight_decay=ADAM_DECAY)
        self.schedule, self.began = Schedule(options, step, rope_base), time.time()
        self.log = Log(self.began)

    def run(self):
        last_evaluation = self.began
        while True:
            if self.rank == 0:
                self.write_plan()
            self.team.wait()
            progress, rate, tokens, skipped = self.team.plan.tolist()
            self.team.wait()  # nobody plans the next step before all have read this one
            if progress >= 1:
                break
            self.train_step(progress, rate, int(tokens), int(skipped))
            if self.rank == 0 and time.time() - last_evaluation > self.options.evaluate_every_s:
                self.keep(EVALUATED)
                last_evaluation = time.time()
        if self.rank == 0:
            self.keep(EVALUATED_LAST)

    def write_plan(self):
        """Sets progress, learning rate, lengths of documents and skips of positions."""
        progress = self.schedule.progress(self.step, time.time() - self.began)
        self.team.plan.copy_(torch.tensor([progress, self.schedule.rate(self.step, progress),
                                           *self.schedule.lengths(self.step, progress)]))

    def train_step(self, progress, rate, tokens, skipped):
        options = self.options
        self.model.rope_base = self.schedule.rope_base(progress)
        rows = max(1, options.tokens_per_step // self.team.size // tokens)
        first = (self.step * self.team.size + self.rank) * 64
        seeds = [(options.first_seed + first + i) % logbook.HELD_OUT_FROM for i in range(rows)]
        data = batch.make_batch(seeds, tokens, self.tokenizer, self.team.device)
        hint = options.hint * max(0.0, 1 - progress / options.hint_until)
        pairs = data.pairs if hint > 0 and any(data.pairs) else None
        positions = skip_positions(tokens, skipped, self.step).to(self.team.device)
        logits, shown = self.model(data.ids[:, :-1], positions, pairs=pairs)
        losses = F.cross_entropy(logits.flatten(0, 1), data.ids[:, 1:].flatten(), reduction="none")
        loss, means = batch.weighted_loss(losses, data.groups[:, 1:].flatten())
        total = loss - hint * sum(logs.mean() for logs in shown) / len(shown) if shown else loss
        for p in self.parameters:
            p.grad = None
        total.backward()
        norm = self.share_gradients()
        for group in self.adam.param_groups:
            group["lr"] = options.adam_rate * rate
        self.adam.step()
        self.muon.step(options.muon_rate * rate)
        self.step += 1
        self.log.add(self.step, tokens, rows * self.team.size, means, shown)
        if self.rank == 0 and self.step % options.log_every == 0:
            self.log.flush(norm, rate)

    def share_gradients(self):
        """Gives every process the team's mean gradient, clipped; returns its norm."""
        own = torch.cat([p.grad.reshape(-1) for p in self.parameters])
        self.team.gradients[self.rank].copy_(own)
        self.team.wait()
        mean = sum(self.team.gradients) / self.team.size
        norm = mean.norm().item()
        mean *= min(1.0, GRADIENT_NORM_MAX / (norm + 1e-6))
        for p, part in zip(self.parameters, mean.split([p.numel() for p in self.parameters])):
            p.grad = part.view_as(p)
        return norm

    def keep(self, documents):
        """Writes the checkpoint and the accuracy on held-out documents."""
        checkpoint.save(self.options.out, self.model, self.step)
        lines = [line for tokens, n in documents.items() if tokens <= self.options.context
                 for i in range(n)
                 for line in make_logbook.lines_of(logbook.HELD_OUT_FROM + EVALUATION_SEED + i,
                                                   tokens, self.tokenizer)]
        tally = evaluate(self.model, self.tokenizer, lines)
        for tokens in tally.lengths():
            print("held out", self.step, tally.short(tokens), flush=True)


class Log:
    """Means since the last printed line."""

    def __init__(self, began):
        self._began = began
        self._clear()

    def _clear(self):
        self._sums, self._n, self._seconds, self._last = {}, {}, {}, time.time()

    def _add(self, name, value):
        self._sums[name] = self._sums.get(name, 0.0) + float(value)
        self._n[name] = self._n.get(name, 0) + 1

    def add(self, step, tokens, rows, means, shown):
        self._step = step
        now = time.time()
        for name, group in (("answers", batch.ANSWER), ("prose", batch.PROSE)):
            if group in means:
                self._add(name, means[group].detach())
        self._add("shown", sum(logs.detach().exp().mean() for logs in shown) / max(1, len(shown)))
        self._add("tokens/s", rows * tokens / (now - self._last))
        self._add(f"s at {rows}x{tokens}", now - self._last)
        self._last = now

    def flush(self, norm, rate):
        text = " ".join(f"{name} {self._sums[name] / self._n[name]:.3f}" for name in
                        sorted(self._sums))
        print(f"{self._step} {time.time() - self._began:.0f}s rate {rate:.2f} norm {norm:.2f} "
              + text, flush=True)
        self._clear()


def split_parameters(model):
    """The hidden matrices, which Muon trains, and the rest."""
    matrices, others = [], []
    for name, p in model.named_parameters():
        (matrices if p.dim() == 2 and name != "token_embd.weight" else others).append(p)
    return matrices, others


def skip_positions(tokens, far, seed):
    """Positions that leap ahead at two random places, together by less than `far`."""
    positions, choose = torch.arange(tokens), random.Random(seed)
    for place in choose.sample(range(1, tokens), 2):
        positions[place:] += choose.randint(0, far // 2)
    return positions


def start_model(options, tokenizer):
    """The initial model and its step."""
    model, generator = Model(len(tokenizer.tokens)), torch.Generator().manual_seed(options.seed)
    if options.resume:
        step = checkpoint.load(options.resume, model)
        print(f"goes on from step {step} of {options.resume}")
        return model, step
    prime(model, tokenizer, generator)
    if options.warm:
        n_same = checkpoint.warm_start(model, tokenizer, *options.warm)
        order_numbers(model, tokenizer, generator)
        print(f"{n_same} of {len(tokenizer.tokens)} embeddings come from {options.warm[0]}")
    return model, 0


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="checkpoint to write")
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--hours", type=float)
    length.add_argument("--steps", type=int, help="length in steps, not in hours")
    parser.add_argument("--resume", metavar="FILE", help="checkpoint or GGUF to continue from")
    parser.add_argument("--warm", nargs=2, metavar=("MODEL", "TOKENS"),
                        help="weights and merges of a model with another vocabulary")
    parser.add_argument("--curriculum", default=CURRICULUM, help=f"default: {CURRICULUM}")
    parser.add_argument("--tokens-per-step", type=int, default=4096)
    parser.add_argument("--muon-rate", type=float, default=MUON_RATE)
    parser.add_argument("--adam-rate", type=float, default=ADAM_RATE)
    parser.add_argument("--warm-up", type=int, default=WARM_UP_STEPS, help="steps")
    parser.add_argument("--hint", type=float, default=0.5, help="weight of shown attention")
    parser.add_argument("--hint-until", type=float, default=0.6, help="share of the time")
    parser.add_argument("--rope-base", type=float, help="final base (default: unchanged)")
    parser.add_argument("--rope-base-until", type=float, default=0.4,
                        help="share of the time until RoPE's final base; 0: at once")
    parser.add_argument("--context", type=int, default=CONTEXT, help="farthest position")
    parser.add_argument("--seed", type=int, default=1, help="seed of the initial weights")
    parser.add_argument("--first-seed", type=int, default=0, help="first seed of documents")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, default=2, help="processes, on a CPU")
    parser.add_argument("--log-every", type=int, default=50, help="steps")
    parser.add_argument("--evaluate-every-s", type=float, default=600)
    return parser.parse_args()


def run_worker(rank, team, options, *start):
    if team.device == "cpu":
        torch.set_num_threads(1)
    Trainer(rank, team, options, *start).run()


def main():
    options = parse_options()
    tokenizer = bpe.load()
    model, step = start_model(options, tokenizer)
    n_parameters = sum(p.numel() for p in model.parameters())
    print(f"{n_parameters} parameters, {len(tokenizer.tokens)} tokens, on {options.device}",
          flush=True)
    size = options.workers if options.device == "cpu" else 1
    team = Team(size, n_parameters, sum(p.numel() for p in split_parameters(model)[0]),
                options.device)
    arguments = (team, options, model.state_dict(), step, model.rope_base)
    if size == 1:
        run_worker(0, *arguments)
        return
    workers = [mp.Process(target=run_worker, args=(rank, *arguments)) for rank in range(size)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    main()
