"""Training documents as tensors: one document a row, from the start token to the end token."""

from dataclasses import dataclass

import torch

import logbook

PADDING, ANSWER, PROSE, REST = range(4)
GROUP_OF_KIND = {"answer": ANSWER, "prose": PROSE}
# What a group counts in the loss. Each is averaged for itself, so that in long documents the
# answers do not drown in prose.
GROUP_WEIGHTS = {ANSWER: 1.0, PROSE: 0.35, REST: 0.1}
BEFORE_SHARE = 0.25  # of documents begin with a question
ASK_SHARE = (0.2, 0.5)  # of a document's tokens are questions, at most
ASK_TOKENS_MAX = 1200


@dataclass
class Batch:
    """ids [rows, tokens + 1]; groups of the same shape; pairs per row: (from, to) of ids."""

    ids: torch.Tensor
    groups: torch.Tensor
    pairs: list


def training_document(seed, tokens, tokenizer):
    """The pieces of a training document, all questions answered one after the other."""
    part = (seed % 97) / 97
    ask = ASK_SHARE[0] + part * (ASK_SHARE[1] - ASK_SHARE[0])
    ask_tokens = min(int(tokens * ask), ASK_TOKENS_MAX)
    document = logbook.make_document(seed, tokens - 1, tokenizer.encode, ask_tokens)
    stop = logbook.Piece(".\n", "question", ids=tokenizer.encode(".\n"))
    questions, pieces = list(document.questions), []
    if document.before and (seed % 89) / 89 < BEFORE_SHARE:
        pieces += document.before.ahead
        questions.insert(0, document.before)
    pieces += document.body
    for question in questions:
        pieces += [*question.asked, question.answer, stop]
    return pieces


def make_row(seed, tokens, tokenizer):
    """ids, groups and pairs of one document, cut or filled up to tokens + 1."""
    ids, groups, homes, pairs = [tokenizer.start], [PADDING], {}, []
    for piece in training_document(seed, tokens, tokenizer):
        content = len(ids) + tokenizer.content_offset(piece.ids)
        come = content - 1 if piece.kind == "answer" else len(ids)
        pairs += [(come, homes[key]) for key in piece.looks if key in homes]
        if piece.home:
            homes[piece.home] = content
        ids += piece.ids
        groups += [GROUP_OF_KIND.get(piece.kind, REST)] * len(piece.ids)
    ids.append(tokenizer.end)
    groups.append(REST)
    missing = tokens + 1 - len(ids)
    ids += [tokenizer.end] * missing
    groups += [PADDING] * missing
    return ids[:tokens + 1], groups[:tokens + 1], [pair for pair in pairs if pair[0] < tokens]


def make_batch(seeds, tokens, tokenizer, device):
    assert not any(map(logbook.is_held_out, seeds)), "held-out documents are not for training"
    ids, groups, pairs = zip(*(make_row(seed, tokens, tokenizer) for seed in seeds))
    return Batch(torch.tensor(ids, device=device), torch.tensor(groups, device=device), pairs)


def weighted_loss(losses, groups):
    """The mean of each group's mean, weighted; and the answers' mean alone."""
    means = {group: losses[groups == group].mean() for group in GROUP_WEIGHTS
             if (groups == group).any()}
    total = sum(GROUP_WEIGHTS[group] * mean for group, mean in means.items())
    return total / sum(GROUP_WEIGHTS[group] for group in means), means
