"Wrong answers that somebody gave: each section is a whole submission, its cells, the checks that fail, and what they say."

# answer: argsort_from_zero
# cell: toy_by_hand
# fails: test_toy_ranks
# says: ARGSORT ONCE, and from 0
def toy_ranks():
    return toy.argsort().tolist()


def toy_value():
    return 5.96


def toy_extreme():
    return "largest"


# answer: argsort_once
# cell: toy_by_hand
# fails: test_toy_ranks
# says: argsort-once
def toy_ranks():
    return [2, 4, 5, 1, 3]


def toy_value():
    return 5.96


def toy_extreme():
    return "largest"


# answer: batch_positives
# cell: recall_cost
# fails: test_recall_cost
# says: batch-positives
def recall_cost(distances, relevance, margin):
    shifted = distances + torch.where(relevance, margin / 2, -margin / 2)
    ahead = (shifted[:, None, :] < shifted[:, :, None]) & ~relevance[:, None, :]
    return (ahead.sum(-1).to(distances.dtype).sqrt() * relevance).sum() / relevance.sum()


# answer: detached_perturbation
# cell: percentiles
# fails: test_percentiles
# says: no-perturbation
class Percentiles(torch.autograd.Function):
    @staticmethod
    def forward(ctx, distances, lam):
        ctx.lam = lam
        ctx.save_for_backward(distances)
        return (nearest_ranks(distances) - 1).to(distances.dtype) / (len(distances) - 1)

    @staticmethod
    def backward(ctx, grad):
        distances, = ctx.saved_tensors
        moved = distances - ctx.lam * distances.new_zeros(len(distances))
        return (nearest_ranks(distances) - nearest_ranks(moved)) / (ctx.lam * (len(distances) - 1)), None


# answer: empty_queries_as_zero
# cell: recall_cost
# fails: test_recall_cost
# says: empty-queries
def recall_cost(distances, relevance, margin):
    shifted = distances + torch.where(relevance, margin / 2, -margin / 2)
    ahead = (shifted[:, None, :] < shifted[:, :, None]) & ~relevance[:, None, :]
    per_query = (ahead.sum(-1).to(distances.dtype).sqrt() * relevance).sum(1) / relevance.sum(1).clamp(min=1)
    return per_query.mean()


# answer: everything_detached
# cell: extended
# fails: test_extended
# says: everything detached
def extended(batches, keep):
    newest_first = list(reversed(batches))[: keep + 1]
    return torch.cat([d.detach() for d, _ in newest_first]).requires_grad_(), torch.cat([p for _, p in newest_first])


# answer: farthest_first
# cell: toy_by_hand
# fails: test_toy_extreme, test_toy_ranks, test_toy_value
# says: This is what you get with
def toy_ranks():
    return [2, 5, 1, 4, 3]


def toy_value():
    return 3.82


def toy_extreme():
    return "smallest"


# answer: gain_over_gap
# cell: choose_lambda
# fails: test_first_lambda
# says: gain over gap
def first_lambda(distances, g):
    behind, gain = distances[None, :] - distances[:, None], g[None, :] - g[:, None]
    possible = (behind > 0) & (gain > 0)
    return float(1 / (behind / gain)[possible].min())


def to_percentiles(lam, n):
    return lam / (n - 1)


def choose_lambda(distances, g, share, grid):
    for lam in grid:
        if (nearest_ranks(distances - lam * g) != nearest_ranks(distances)).double().mean() >= share:
            return lam
    return None


# answer: gradient_sign
# cell: backward_rule
# fails: test_backward_rule
# says: gradient-sign
def backward_rule(distances, g, lam):
    return -(nearest_ranks(distances) - nearest_ranks(distances - lam * g)) / lam


# answer: graph_kept
# cell: extended
# fails: test_extended
# says: an old batch that gets a gradient
def extended(batches, keep):
    newest_first = list(reversed(batches))[: keep + 1]
    return torch.cat([d for d, _ in newest_first]), torch.cat([p for _, p in newest_first])


# answer: lambda_multiplied
# cell: choose_lambda
# fails: test_to_percentiles
# says: lambda-scale
def first_lambda(distances, g):
    behind, gain = distances[None, :] - distances[:, None], g[None, :] - g[:, None]
    possible = (behind > 0) & (gain > 0)
    return float((behind / gain)[possible].min()) if possible.any() else math.inf


def to_percentiles(lam, n):
    return lam * (n - 1)


def choose_lambda(distances, g, share, grid):
    for lam in grid:
        if (nearest_ranks(distances - lam * g) != nearest_ranks(distances)).double().mean() >= share:
            return lam
    return None


# answer: lambda_of_whole_ranks
# cell: percentiles
# fails: test_percentiles
# says: lambda-scale
class Percentiles(torch.autograd.Function):
    @staticmethod
    def forward(ctx, distances, lam):
        ctx.lam = lam
        ctx.save_for_backward(distances)
        return (nearest_ranks(distances) - 1).to(distances.dtype) / (len(distances) - 1)

    @staticmethod
    def backward(ctx, grad):
        distances, = ctx.saved_tensors
        return (nearest_ranks(distances) - nearest_ranks(distances - ctx.lam * grad)) / ctx.lam, None


# answer: lambda_over_n
# cell: percentiles
# fails: test_percentiles
# says: lambda-over-n
class Percentiles(torch.autograd.Function):
    @staticmethod
    def forward(ctx, distances, lam):
        ctx.lam = lam
        ctx.save_for_backward(distances)
        return (nearest_ranks(distances) - 1).to(distances.dtype) / (len(distances) - 1)

    @staticmethod
    def backward(ctx, grad):
        distances, = ctx.saved_tensors
        return (nearest_ranks(distances) - nearest_ranks(distances - ctx.lam * grad)) / (ctx.lam * len(distances)), None


# answer: library_rule
# cell: backward_rule
# fails: test_backward_rule
# says: both-signs
def backward_rule(distances, g, lam):
    return -(nearest_ranks(distances) - nearest_ranks(distances + lam * g)) / lam


# answer: log_weight
# cell: recall_cost
# fails: test_recall_cost
# says: log(1 + r)
def recall_cost(distances, relevance, margin):
    shifted = distances + torch.where(relevance, margin / 2, -margin / 2)
    ahead = (shifted[:, None, :] < shifted[:, :, None]) & ~relevance[:, None, :]
    per_query = (ahead.sum(-1).to(distances.dtype).log1p() * relevance).sum(1) / relevance.sum(1)
    return per_query[relevance.any(1)].mean()


# answer: margin_sign
# cell: recall_cost
# fails: test_recall_cost
# says: margin-sign
def recall_cost(distances, relevance, margin):
    shifted = distances + torch.where(relevance, -margin / 2, margin / 2)
    ahead = (shifted[:, None, :] < shifted[:, :, None]) & ~relevance[:, None, :]
    per_query = (ahead.sum(-1).to(distances.dtype).sqrt() * relevance).sum(1) / relevance.sum(1)
    return per_query[relevance.any(1)].mean()


# answer: moved_too_far
# cell: percentiles
# fails: test_percentiles
# says: lambda-too-far
class Percentiles(torch.autograd.Function):
    @staticmethod
    def forward(ctx, distances, lam):
        ctx.lam = lam
        ctx.save_for_backward(distances)
        return (nearest_ranks(distances) - 1).to(distances.dtype) / (len(distances) - 1)

    @staticmethod
    def backward(ctx, grad):
        distances, = ctx.saved_tensors
        lam = ctx.lam * (len(distances) - 1)
        return (nearest_ranks(distances) - nearest_ranks(distances - lam * grad)) / (lam * (len(distances) - 1)), None


# answer: no_perturbation
# cell: backward_rule
# fails: test_backward_rule
# says: no-perturbation
def backward_rule(distances, g, lam):
    return (nearest_ranks(distances) - nearest_ranks(distances - lam * 0 * g)) / lam


# answer: not_divided
# cell: backward_rule
# fails: test_backward_rule
# says: lambda-not-divided
def backward_rule(distances, g, lam):
    return nearest_ranks(distances) - nearest_ranks(distances - lam * g)


# answer: oldest_kept
# cell: extended
# fails: test_extended
# says: the oldest batch kept
def extended(batches, keep):
    kept = [batches[-1], *batches[:keep]]
    return torch.cat([d if age == 0 else d.detach() for age, (d, _) in enumerate(kept)]), torch.cat([p for _, p in kept])


# answer: only_gains
# cell: choose_lambda
# fails: test_first_lambda
# says: only items that gain
def first_lambda(distances, g):
    found = [(distances[j] - distances[i]) / g[j] for i in range(len(g)) for j in range(len(g)) if distances[j] > distances[i] and g[j] > 0 and g[i] == 0]
    return float(min(found)) if found else math.inf


def to_percentiles(lam, n):
    return lam / (n - 1)


def choose_lambda(distances, g, share, grid):
    for lam in grid:
        if (nearest_ranks(distances - lam * g) != nearest_ranks(distances)).double().mean() >= share:
            return lam
    return None


# answer: positives_counted
# cell: recall_cost
# fails: test_recall_cost
# says: positives-counted
def recall_cost(distances, relevance, margin):
    shifted = distances + torch.where(relevance, margin / 2, -margin / 2)
    ahead = shifted[:, None, :] < shifted[:, :, None]
    per_query = (ahead.sum(-1).to(distances.dtype).sqrt() * relevance).sum(1) / relevance.sum(1)
    return per_query[relevance.any(1)].mean()


# answer: rows_stacked
# cell: extended
# fails: test_extended
# says: rows stacked
def extended(batches, keep):
    newest_first = list(reversed(batches))[: keep + 1]
    return torch.stack([d if age == 0 else d.detach() for age, (d, _) in enumerate(newest_first)]), torch.stack([p for _, p in newest_first])


# answer: smallest_for_largest
# cell: toy_by_hand
# fails: test_toy_extreme
# says: the answer for scores
def toy_ranks():
    return [4, 1, 5, 2, 3]


def toy_value():
    return 5.96


def toy_extreme():
    return "smallest"


# answer: straight_through
# cell: percentiles
# fails: test_percentiles
# says: straight-through
class Percentiles(torch.autograd.Function):
    @staticmethod
    def forward(ctx, distances, lam):
        return (nearest_ranks(distances) - 1).to(distances.dtype) / (len(distances) - 1)

    @staticmethod
    def backward(ctx, grad):
        return grad, None


# answer: wrong_way
# cell: backward_rule
# fails: test_backward_rule
# says: wrong-way
def backward_rule(distances, g, lam):
    return (nearest_ranks(distances) - nearest_ranks(distances + lam * g)) / lam


# answer: items_counted
# cell: draw_reached
# fails: test_draw_reached
# says: 5-draw_reached-1
def draw_reached(axes, rule, distances, g, grid):
    axes.plot(grid, [int((rule(distances, g, lam) != 0).sum()) for lam in grid], label="items with a gradient")
    axes.set(xscale="log", xlabel="lambda", ylabel="items")


# answer: gains_alone
# cell: draw_reached
# fails: test_draw_reached
# says: 5-draw_reached-3
def draw_reached(axes, rule, distances, g, grid):
    axes.plot(grid, [float((rule(distances, g, lam) > 0).double().mean()) for lam in grid], label="items with a gradient")
    axes.set(xscale="log", xlabel="lambda", ylabel="share")


# answer: sum_within_queries
# cell: recall_cost
# fails: test_recall_cost
# says: 5-recall_cost-6
def recall_cost(distances, relevance, margin):
    d = distances + margin * relevance
    ahead = (d[:, None, :] <= d[:, :, None]) & ~relevance[:, None, :]
    r = ahead.sum(2).double().sqrt()
    return torch.stack([r[q][relevance[q]].sum() for q in range(len(r)) if relevance[q].any()]).mean()


# answer: n_minus_one_twice
# cell: choose_lambda
# fails: test_to_percentiles
# says: 5-to_percentiles-2
def first_lambda(distances, g):
    d, gg = distances.sort().values, g[distances.argsort()]
    best = math.inf
    for i in range(len(d) - 1):
        if gg[i + 1] > gg[i]:
            best = min(best, float((d[i + 1] - d[i]) / (gg[i + 1] - gg[i])))
    return best


def to_percentiles(lam, n):
    return lam / (n - 1) ** 2


def choose_lambda(distances, g, share, grid):
    for lam in grid:
        if (nearest_ranks(distances - lam * g) != nearest_ranks(distances)).double().mean() >= share:
            return lam


# answer: only_moves_back
# cell: choose_lambda
# fails: test_choose_lambda
# says: 5-choose_lambda-4
def first_lambda(distances, g):
    d, gg = distances.sort().values, g[distances.argsort()]
    best = math.inf
    for i in range(len(d) - 1):
        if gg[i + 1] > gg[i]:
            best = min(best, float((d[i + 1] - d[i]) / (gg[i + 1] - gg[i])))
    return best


def to_percentiles(lam, n):
    return lam / (n - 1)


def choose_lambda(distances, g, share, grid):
    for lam in grid:
        moved = nearest_ranks(distances - lam * g) - nearest_ranks(distances)
        if (moved > 0).double().mean() >= share:
            return lam
