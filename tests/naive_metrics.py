"Retrieval metrics of one ranking as plain Python, straight from their definitions: the oracle of the evaluation tests."

from __future__ import annotations

import math


def amount_ahead(scores, i, items, ties):
    "How much of `items` stands ahead of item i: a tie counts 1, 0 or 1/2."
    equal = {"max": 1.0, "min": 0.0, "average": 0.5}[ties]
    return sum(1.0 if scores[j] > scores[i] else equal if scores[j] == scores[i] else 0.0 for j in items if j != i)


def average_precision(scores, levels, level, ties="max"):
    members = [i for i, value in enumerate(levels) if value >= level]
    everything = range(len(scores))
    total = sum(
        (1 + amount_ahead(scores, i, members, ties)) / (1 + amount_ahead(scores, i, everything, ties)) for i in members
    )
    return total / len(members) if members else math.nan


def places(scores, levels, level, ties="max"):
    """Place of each positive, best first: tied negatives stand before it, behind it or half and half; positives never
    push each other.
    """
    negatives = [i for i, value in enumerate(levels) if value < level]
    order = sorted((i for i, value in enumerate(levels) if value >= level), key=lambda i: -scores[i])
    return [n + amount_ahead(scores, i, negatives, ties) for n, i in enumerate(order, 1)]


def cutoff_metrics(scores, levels, level, ties="max", ks=()):
    at = places(scores, levels, level, ties)
    if not at:
        return {name: math.nan for name in ("mAP@R", "R-precision", *(f"R@{k}" for k in ks), *(f"P@{k}" for k in ks))}
    found = {"mAP@R": sum(n / place for n, place in enumerate(at, 1) if place <= len(at)) / len(at),
             "R-precision": sum(place <= len(at) for place in at) / len(at)}
    for k in ks:
        found[f"R@{k}"] = float(at[0] <= k)
        found[f"P@{k}"] = sum(place <= k for place in at) / k
    return found


def hierarchical_ap(scores, levels, relevance, ties="max"):
    "relevance[level], 0 for level 0."
    rel = [relevance[level] for level in levels]
    equal = {"max": 1.0, "min": 0.0, "average": 0.5}[ties]
    total = 0.0
    for i in (i for i, level in enumerate(levels) if level):
        h_rank = rel[i] + sum(
            min(rel[i], rel[j]) * (1.0 if scores[j] > scores[i] else equal if scores[j] == scores[i] else 0.0)
            for j in range(len(scores))
            if j != i
        )
        total += h_rank / (1 + amount_ahead(scores, i, range(len(scores)), ties))
    return total / sum(rel) if sum(rel) else math.nan


def relevance_by_alpha(levels, depth, alpha=1.0, extra_fine=0):
    counts = [sum(value == level for value in levels) for level in range(depth + 1)]
    counts[depth] += extra_fine
    return [0.0] + [(level / depth) ** alpha / counts[level] if counts[level] else 0.0 for level in range(1, depth + 1)]


def relevance_by_weights(levels, weights, extra_fine=0):
    depth = len(weights)
    counts = [sum(value >= level for value in levels) for level in range(depth + 1)]
    counts[depth] += extra_fine
    return [0.0] + [
        sum(weights[p - 1] / counts[p] for p in range(1, level + 1) if counts[p]) for level in range(1, depth + 1)
    ]


def levels_between(label, gallery_labels):
    "Length of the common prefix."
    found = []
    for other in gallery_labels:
        level = 0
        while level < len(label) and label[level] == other[level]:
            level += 1
        found.append(level)
    return found


def early_metrics(scores, levels, level, ties="max", ks=()):
    "What looks at the first places: reciprocal rank of the best positive, AP within K places over min(K, positives)."
    at = places(scores, levels, level, ties)
    if not at:
        return {name: math.nan for name in ("MRR", *(f"mAP@{k}" for k in ks))}
    found = {"MRR": 1 / at[0]}
    for k in ks:
        found[f"mAP@{k}"] = sum(n / place for n, place in enumerate(at, 1) if place <= k) / min(k, len(at))
    return found


def ndcg_at(scores, levels, k=None, ties="max"):
    "NDCG with gain 2^level - 1; ranks beyond k gain nothing."
    k, everything = k or len(scores), range(len(scores))
    ranks = [1 + amount_ahead(scores, i, everything, ties) for i in everything]
    gained = sum((2 ** level - 1) / math.log2(1 + rank) for level, rank in zip(levels, ranks) if rank <= k)
    ideal = sum((2 ** level - 1) / math.log2(1 + n) for n, level in enumerate(sorted(levels, reverse=True)[:k], 1))
    return gained / ideal if ideal else math.nan
