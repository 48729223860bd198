"Wrong answers that somebody gave: each section is a whole submission, its cells, the checks that fail, and what they say."

# answer: alpha_below_zero
# cell: steepest_needed
# fails: test_steepest_needed
# says: an alpha below 0
def steepest_needed(sizes):
    occupied = [(level, size) for level, size in enumerate(sizes, start=1) if size]
    return max(math.log(b / a) / math.log(fine / coarse) for (coarse, a), (fine, b) in zip(occupied, occupied[1:]))


# answer: at_least
# cell: level_sizes
# fails: test_level_sizes
# says: 'at least'
def level_sizes(labels, query):
    shared = (labels == labels[query]).long().cumprod(1).sum(1)
    shared[query] = 0
    return [int((shared >= level).sum()) for level in range(1, labels.shape[1] + 1)]


# answer: coarse_grid
# cell: steps
# fails: test_violation
# says: too coarse around 0
def upper(t):
    return torch.where(t <= 0, torch.exp(t.clamp(max=0) / .02), 1 + t / .02)


def lower(t):
    return torch.where(t <= 0, 4 * t, (10 * t + .25).clamp(max=1))


def violation(step, side):
    t = torch.linspace(-2, 2, 400, dtype=torch.float64)
    excess = step(t) - (t > 0).double()
    return max(0., float((excess if side == "lower" else -excess).max()))


# answer: columns_apart
# cell: level_sizes
# fails: test_level_sizes
# says: each column on its own
def level_sizes(labels, query):
    same = labels == labels[query]
    same[query] = False
    return same.sum(0).tolist()


# answer: empty_level_asked
# cell: steepest_needed
# fails: test_steepest_needed
# says: an empty level
def steepest_needed(sizes):
    pairs = [(level, a, b) for level, (a, b) in enumerate(zip(sizes, sizes[1:]), start=1) if a and b]
    return max([0., *(math.log(b / a) / math.log((level + 1) / level) for level, a, b in pairs)])


# answer: empty_levels_not_rescaled
# cell: worths
# fails: test_worths
# says: law 2
def worths(sizes):
    worth, total = [], 0.
    for level in range(len(sizes)):
        total += 1 / len(sizes) / max(sum(sizes[level:]), 1)
        worth.append(total)
    return worth


# answer: grid_ends_early
# cell: steps
# fails: test_violation
# says: ends too early
def upper(t):
    return torch.where(t <= 0, torch.exp(t.clamp(max=0) / .02), 1 + t / .02)


def lower(t):
    return torch.where(t <= 0, 4 * t, (10 * t + .25).clamp(max=1))


def violation(step, side):
    near = 10 ** torch.linspace(-6, -1, 500, dtype=torch.float64)
    t = torch.cat([near, -near])
    excess = step(t) - (t > 0).double()
    return max(0., float((excess if side == "lower" else -excess).max()))


# answer: level_alone
# cell: worths
# fails: test_worths
# says: lets a crowded level drown
def worths(sizes):
    total = sum(n * level for level, n in enumerate(sizes, start=1))
    return [level / total for level in range(1, len(sizes) + 1)]


# answer: max_for_min_in_h_ap
# cell: strict_h_ap
# fails: test_strict_h_ap
# says: max for min
def strict_h_ap(scores, relevance):
    scores, relevance = torch.as_tensor(scores), torch.as_tensor(relevance, dtype=torch.float64)
    if not relevance.any():
        return math.nan
    positive = (relevance > 0).double()
    ahead = (scores[None, :] > scores[:, None]).double()
    h_rank = relevance + (ahead * positive[None, :] * torch.maximum(relevance[:, None], relevance[None, :])).sum(1)
    rank = 1 + (ahead * (2 - positive)[None, :]).sum(1)
    return float((h_rank / rank)[relevance > 0].sum() / relevance.sum())


# answer: max_for_min_in_h_rank
# cell: h_rank_by_hand
# fails: test_h_ranks_by_hand
# says: max for min
def h_ranks_by_hand():
    return [1, 8, 0, 27, 15]


def h_ap_by_hand():
    return Fraction(13, 25)


# answer: max_for_min_in_the_step
# cell: steps
# fails: test_lower
# says: max-for-min
def upper(t):
    return torch.where(t <= 0, torch.exp(t.clamp(max=0) / .02), 1 + t / .02)


def lower(t):
    return torch.where(t <= 0, 4 * t, (10 * t + .25).clamp(min=1))


def violation(step, side):
    near = 10 ** torch.linspace(-6, 0, 500, dtype=torch.float64)
    t = torch.cat([near, -near, torch.linspace(-2, 2, 4000, dtype=torch.float64)])
    excess = step(t) - (t > 0).double()
    return max(0., float((excess if side == "lower" else -excess).max()))


# answer: mean_over_positives
# cell: h_rank_by_hand
# fails: test_h_ap_by_hand
# says: the mean over the four positives
def h_ranks_by_hand():
    return [1, 5, 0, 14, 4]


def h_ap_by_hand():
    return (Fraction(1) + Fraction(5, 2) + Fraction(14, 4) + Fraction(4, 5)) / 4


# answer: negatives_once
# cell: strict_h_ap
# fails: test_strict_h_ap
# says: negatives that count once
def strict_h_ap(scores, relevance):
    scores, relevance = torch.as_tensor(scores), torch.as_tensor(relevance, dtype=torch.float64)
    if not relevance.any():
        return math.nan
    ahead = (scores[None, :] > scores[:, None]).double()
    h_rank = relevance + (ahead * torch.minimum(relevance[:, None], relevance[None, :])).sum(1)
    return float((h_rank / (1 + ahead.sum(1)))[relevance > 0].sum() / relevance.sum())


# answer: not_monotone
# cell: worths
# fails: test_worths
# says: relevance is not monotone
def worths(sizes):
    worth = [level / max(n, 1) for level, n in enumerate(sizes, start=1)]
    total = sum(n * w for n, w in zip(sizes, worth))
    return [w / total for w in worth]


# answer: number_of_positives
# cell: strict_h_ap
# fails: test_strict_h_ap
# says: the number of positives below the line
def strict_h_ap(scores, relevance):
    scores, relevance = torch.as_tensor(scores), torch.as_tensor(relevance, dtype=torch.float64)
    if not relevance.any():
        return math.nan
    ahead = (scores[None, :] > scores[:, None]).double()
    h_rank = relevance + (ahead * torch.minimum(relevance[:, None], relevance[None, :])).sum(1)
    rank = 1 + (ahead * torch.where(relevance > 0, 1., 2.)).sum(1)
    return float((h_rank / rank)[relevance > 0].mean())


# answer: own_worth_left_out
# cell: h_rank_by_hand
# fails: test_h_ranks_by_hand
# says: own worth left out
def h_ranks_by_hand():
    return [0, 1, 0, 5, 3]


def h_ap_by_hand():
    return Fraction(13, 25)


# answer: query_in_its_level
# cell: level_sizes
# fails: test_level_sizes
# says: the query in its own level
def level_sizes(labels, query):
    shared = (labels == labels[query]).long().cumprod(1).sum(1)
    return [int((shared == level).sum()) for level in range(1, labels.shape[1] + 1)]


# answer: sizes_swapped
# cell: steepest_needed
# fails: test_steepest_needed
# says: the two sizes swapped
def steepest_needed(sizes):
    occupied = [(level, size) for level, size in enumerate(sizes, start=1) if size]
    return max(math.log(a / b) / math.log(fine / coarse) for (coarse, a), (fine, b) in zip(occupied, occupied[1:]))


# answer: upper_drops
# cell: steps
# fails: test_upper
# says: a line that starts at 0
def upper(t):
    return torch.where(t <= 0, torch.exp(t.clamp(max=0) / .02), t / .02)


def lower(t):
    return torch.where(t <= 0, 4 * t, (10 * t + .25).clamp(max=1))


def violation(step, side):
    near = 10 ** torch.linspace(-6, 0, 500, dtype=torch.float64)
    t = torch.cat([near, -near, torch.linspace(-2, 2, 4000, dtype=torch.float64)])
    excess = step(t) - (t > 0).double()
    return max(0., float((excess if side == "lower" else -excess).max()))


# answer: wrong_side
# cell: steps
# fails: test_violation
# says: the wrong side
def upper(t):
    return torch.where(t <= 0, torch.exp(t.clamp(max=0) / .02), 1 + t / .02)


def lower(t):
    return torch.where(t <= 0, 4 * t, (10 * t + .25).clamp(max=1))


def violation(step, side):
    near = 10 ** torch.linspace(-6, 0, 500, dtype=torch.float64)
    t = torch.cat([near, -near, torch.linspace(-2, 2, 4000, dtype=torch.float64)])
    excess = step(t) - (t > 0).double()
    return max(0., float((-excess if side == "lower" else excess)[t > 0].max()))


# answer: ten_points
# cell: draw_steps
# fails: test_draw_steps
# says: a jump would look like a slope
def draw_steps(axes, steps):
    t = torch.linspace(-.5, .5, 11)
    for label, step in steps.items():
        axes.plot(t, step(t), label=label)
    axes.set(xlabel="t", ylabel="step")
    axes.legend()


# answer: one_step_twice
# cell: draw_steps
# fails: test_draw_steps
# says: 6-draw_steps-1
def draw_steps(axes, steps):
    t = torch.linspace(-.5, .5, 1001)
    for label, step in steps.items():
        axes.plot(t, list(steps.values())[1](t), label=label)
    axes.set(xlabel="t", ylabel="step")
    axes.legend()


# answer: itself_ahead
# cell: strict_h_ap
# fails: test_strict_h_ap
# says: self-counted
def strict_h_ap(scores, relevance):
    if sum(relevance) == 0: return math.nan
    total = 0
    for k in range(len(scores)):
        if relevance[k] > 0:
            h, rank = relevance[k], 1
            for j in range(len(scores)):
                if scores[j] >= scores[k]:
                    h += min(relevance[j], relevance[k])
                    rank += 2 if relevance[j] == 0 else 1
            total += h / rank
    return total / sum(relevance)


# answer: at_least_that_level
# cell: level_sizes
# fails: test_level_sizes
# says: at least
def level_sizes(labels, query):
    out = []
    for l in range(labels.shape[1]):
        out.append(int((labels[:, :l + 1] == labels[query, :l + 1]).all(1).sum()) - 1)
    return out
