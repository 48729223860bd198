"Wrong answers that somebody gave: each section is a whole submission, its cells, the checks that fail, and what they say."

# answer: all_entries
# cell: search
# fails: test_search
# says: 12-search-2
def search(images, query, alpha):
    held, scores = {w: sum(w in image for image in images) for w in query}, []
    for image in images:
        alike = {w: sum(p * q for p, q in zip(image[w], query[w])) / len(query[w]) for w in query if w in image}
        scores.append(sum(math.log(len(images) / held[w]) * max(u, 0) ** alpha for w, u in alike.items()))
    return scores, sum(map(len, images))


# answer: directions_exchanged
# cell: caption_recall
# fails: test_caption_recall
# says: 12-caption_recall-1
def caption_recall(scores, n, K):
    own = torch.arange(scores.shape[0])[:, None] == torch.arange(scores.shape[1]) // n
    foreign = scores.masked_fill(own, -math.inf)
    best = scores.masked_fill(~own, -math.inf).max(1, keepdim=True).values
    to_text, to_image = (foreign >= best).sum(1) < K, (foreign >= scores[own][None, :]).sum(0) < K
    return float(to_image.double().mean()), float(to_text.double().mean())


# answer: empty_picture_nan
# cell: caption_loss
# fails: test_caption_loss
# says: 12-caption_loss-7
def caption_loss(scores, owner, tau):
    from smoothap_nb import smooth_ap

    relevance = torch.arange(len(scores))[:, None] == owner
    found = smooth_ap(scores.T, relevance.T, tau)
    to_image = (relevance * found).sum(1) / relevance.sum(1)
    return (1 - smooth_ap(scores, relevance, tau).mean()) / 2 + (1 - to_image.mean()) / 2


# answer: even_power
# cell: search
# fails: test_search
# says: 12-search-7
def search(images, query, alpha):
    held, scores = {w: sum(w in image for image in images) for w in query}, []
    for image in images:
        alike = {w: sum(p * q for p, q in zip(image[w], query[w])) / len(query[w]) for w in query if w in image}
        scores.append(sum(math.log(len(images) / held[w]) * u ** alpha for w, u in alike.items()))
    return scores, sum(held.values())


# answer: mean_over_captions
# cell: caption_loss
# fails: test_caption_loss
# says: 12-caption_loss-1
def caption_loss(scores, owner, tau):
    from smoothap_nb import smooth_ap

    relevance = torch.arange(len(scores))[:, None] == owner
    has = relevance.any(1)
    return (1 - smooth_ap(scores[has], relevance[has], tau).mean()) / 2 + (1 - smooth_ap(scores.T, relevance.T, tau).mean()) / 2


# answer: no_chance
# cell: draw_recalls
# fails: test_draw_recalls
# says: THE CURVE 'chance' IS MISSING
def draw_recalls(axes, scores, n):
    B, C = scores.shape
    own = torch.arange(B)[:, None] == torch.arange(C) // n
    by_row, by_column = scores.argsort(1, descending=True).argsort(1), scores.argsort(0, descending=True).argsort(0)
    for label, ranks in (("image to text", by_row.masked_fill(~own, C).min(1).values), ("text to image", by_column[own])):
        axes.plot(range(1, B + 1), [float((ranks < K).double().mean()) for K in range(1, B + 1)], label=label)
    axes.set(xlabel="K", ylabel="recall", ylim=(0, 1.05))
    axes.legend()


# answer: no_threshold
# cell: asmk
# fails: test_asmk
# says: 12-asmk-1
def asmk(x, y, alpha, threshold):
    def plain(a, b):
        alike = [sum(p * q for p, q in zip(a[word], b[word])) / len(a[word]) for word in a if word in b]
        return sum(max(u, 0) ** alpha for u in alike)
    own = plain(x, x) * plain(y, y)
    return plain(x, y) / math.sqrt(own) if own else 0.


# answer: no_weight
# cell: search
# fails: test_search
# says: 12-search-1
def search(images, query, alpha):
    scores = []
    for image in images:
        alike = [sum(p * q for p, q in zip(image[w], query[w])) / len(query[w]) for w in query if w in image]
        scores.append(sum(max(u, 0) ** alpha for u in alike))
    return scores, sum(w in image for image in images for w in query)


# answer: number_of_words
# cell: asmk
# fails: test_asmk
# says: 12-asmk-2
def asmk(x, y, alpha, threshold):
    alike = [sum(p * q for p, q in zip(x[word], y[word])) / len(x[word]) for word in x if word in y]
    return sum(u ** alpha for u in alike if u >= threshold) / math.sqrt(len(x) * len(y))


# answer: one_side
# cell: one_point
# fails: test_one_point
# says: 12-one_point-1
def one_point(a, b, ratio, tolerance):
    best = (0, 0)
    for h in range(len(a)):
        mapped = [tuple(ratio[h] * (p - o) + t for p, o, t in zip(point, a[h], b[h])) for point in a]
        witnesses = len({tuple(a[k]) for k in range(len(a)) if math.dist(mapped[k], b[k]) <= tolerance})
        best = max(best, (witnesses, h), key=lambda pair: pair[0])
    return best


# answer: pairs_counted
# cell: one_point
# fails: test_one_point
# says: 12-one_point-1
def one_point(a, b, ratio, tolerance):
    best = (0, 0)
    for h in range(len(a)):
        mapped = [tuple(ratio[h] * (p - o) + t for p, o, t in zip(point, a[h], b[h])) for point in a]
        votes = sum(math.dist(mapped[k], b[k]) <= tolerance for k in range(len(a)))
        if votes > best[0]:
            best = (votes, h)
    return best


# answer: scale_upside_down
# cell: one_point
# fails: test_one_point
# says: 12-one_point-2
def one_point(a, b, ratio, tolerance):
    best = (0, 0)
    for h in range(len(a)):
        mapped = [tuple((p - o) / ratio[h] + t for p, o, t in zip(point, a[h], b[h])) for point in a]
        agree = [k for k in range(len(a)) if math.dist(mapped[k], b[k]) <= tolerance]
        witnesses = min(len({tuple(a[k]) for k in agree}), len({tuple(b[k]) for k in agree}))
        if witnesses > best[0]:
            best = (witnesses, h)
    return best


# answer: self_compared
# cell: caption_loss
# fails: test_caption_loss
# says: 12-caption_loss-5
def caption_loss(scores, owner, tau):
    def soft(s, r):
        g = torch.sigmoid((s[:, None, :] - s[:, :, None]) / tau)
        return ((1 + (g * r[:, None, :]).sum(2)) / (1 + g.sum(2)) * r).sum(1) / r.sum(1).clamp(min=1)
    relevance = torch.arange(len(scores))[:, None] == owner
    has = relevance.any(1)
    found = soft(scores.T, relevance.T)
    to_image = (relevance[has] * found).sum(1) / relevance[has].sum(1)
    return (1 - soft(scores, relevance)[has].mean()) / 2 + (1 - to_image.mean()) / 2


# answer: signs_first
# cell: codes
# fails: test_codes
# says: 12-codes-1
def codes(words, residuals):
    return {w: residuals.sign()[tensor([v == w for v in words])].sum(0).sign().tolist() for w in set(words)}


# answer: ties_by_position
# cell: caption_recall
# fails: test_caption_recall
# says: 12-caption_recall-9
def caption_recall(scores, n, K):
    own = torch.arange(scores.shape[0])[:, None] == torch.arange(scores.shape[1]) // n
    by_row = scores.argsort(dim=1, descending=True, stable=True).argsort(1)
    by_column = scores.argsort(dim=0, descending=True, stable=True).argsort(0)
    best = by_row.masked_fill(~own, scores.shape[1]).min(1).values
    return float((best < K).double().mean()), float((by_column[own] < K).double().mean())


# answer: ties_in_favour
# cell: caption_recall
# fails: test_caption_recall
# says: 12-caption_recall-8
def caption_recall(scores, n, K):
    own = torch.arange(scores.shape[0])[:, None] == torch.arange(scores.shape[1]) // n
    best = scores.masked_fill(~own, -math.inf).max(1, keepdim=True).values
    to_text, to_image = (scores > best).sum(1) < K, (scores > scores[own][None, :]).sum(0) < K
    return float(to_text.double().mean()), float(to_image.double().mean())


# answer: without_a_graph
# cell: caption_loss
# fails: test_caption_loss
# says: 12-caption_loss-9
def caption_loss(scores, owner, tau):
    from smoothap_nb import smooth_ap

    relevance = torch.arange(len(scores))[:, None] == owner
    has = relevance.any(1)
    found = smooth_ap(scores.T, relevance.T, tau)
    to_image = (relevance[has] * found).sum(1) / relevance[has].sum(1)
    return ((1 - smooth_ap(scores[has], relevance[has], tau).mean()) / 2 + (1 - to_image.mean()) / 2).detach()


# answer: worst_caption
# cell: caption_recall
# fails: test_caption_recall
# says: 12-caption_recall-5
def caption_recall(scores, n, K):
    own = torch.arange(scores.shape[0])[:, None] == torch.arange(scores.shape[1]) // n
    foreign = scores.masked_fill(own, -math.inf)
    worst = scores.masked_fill(~own, math.inf).min(1, keepdim=True).values
    to_text, to_image = (foreign >= worst).sum(1) < K, (foreign >= scores[own][None, :]).sum(0) < K
    return float(to_text.double().mean()), float(to_image.double().mean())


# answer: zero_is_minus_one
# cell: codes
# fails: test_codes
# says: 12-codes-2
def codes(words, residuals):
    return {w: torch.where(residuals[tensor([v == w for v in words])].sum(0) > 0, 1, -1).tolist() for w in set(words)}


# answer: each_axis
# cell: one_point
# fails: test_one_point
# says: 12-one_point-4
def one_point(a, b, ratio, tolerance):
    best = (0, 0)
    for h in range(len(a)):
        ok = [k for k in range(len(a)) if all(abs(ratio[h] * (a[k][d] - a[h][d]) + b[h][d] - b[k][d]) <= tolerance for d in (0, 1))]
        n = min(len({a[k] for k in ok}), len({b[k] for k in ok}))
        if n > best[0]: best = (n, h)
    return best


# answer: ratio_of_k
# cell: one_point
# fails: test_one_point
# says: 12-one_point-5
def one_point(a, b, ratio, tolerance):
    best = (0, 0)
    for h in range(len(a)):
        ok = [k for k in range(len(a)) if math.dist((ratio[k] * (a[k][0] - a[h][0]) + b[h][0], ratio[k] * (a[k][1] - a[h][1]) + b[h][1]), b[k]) <= tolerance]
        n = min(len({a[k] for k in ok}), len({b[k] for k in ok}))
        if n > best[0]: best = (n, h)
    return best


# answer: order_exchanged
# cell: one_point
# fails: test_one_point
# says: 12-one_point-6
def one_point(a, b, ratio, tolerance):
    best = (0, 0)
    for h in range(len(a)):
        ok = [k for k in range(len(a)) if math.dist((ratio[h] * (a[k][0] - a[h][0]) + b[h][0], ratio[h] * (a[k][1] - a[h][1]) + b[h][1]), b[k]) <= tolerance]
        n = min(len({a[k] for k in ok}), len({b[k] for k in ok}))
        if n > best[0]: best = (n, h)
    return best[::-1]


# answer: list_of_codes
# cell: codes
# fails: test_codes
# says: A DICTIONARY
def codes(words, residuals):
    return [residuals[[i for i, v in enumerate(words) if v == w]].sum(0).sign().tolist() for w in sorted(set(words))]


# answer: strict_threshold
# cell: asmk
# fails: test_asmk
# says: 12-asmk-10
def asmk(x, y, alpha, threshold):
    def plain(a, b):
        u = [sum(p * q for p, q in zip(a[w], b[w])) / len(a[w]) for w in a if w in b]
        return sum(v ** alpha for v in u if v > threshold)
    own = plain(x, x) * plain(y, y)
    return plain(x, y) / math.sqrt(own) if own else 0.


# answer: half_detached
# cell: caption_loss
# fails: test_caption_loss
# says: THE GRADIENT IS NOT THAT OF THE VALUE
def caption_loss(scores, owner, tau):
    from smoothap_nb import smooth_ap
    r = torch.arange(len(scores))[:, None] == owner
    has = r.any(1)
    rr = smooth_ap(scores.detach().T, r.T, tau)
    return (1 - smooth_ap(scores[has], r[has], tau).mean()) / 2 + (1 - ((r[has] * rr).sum(1) / r[has].sum(1)).mean()) / 2


# answer: returns_pair
# cell: caption_loss
# fails: test_caption_loss
# says: something else is asked for; this is a tuple
def caption_loss(scores, owner, tau):
    from smoothap_nb import smooth_ap
    r = torch.arange(len(scores))[:, None] == owner
    has = r.any(1)
    rr = smooth_ap(scores.T, r.T, tau)
    return (1 - smooth_ap(scores[has], r[has], tau).mean()) / 2, (1 - ((r[has] * rr).sum(1) / r[has].sum(1)).mean()) / 2
