"Submissions that a strict marker has read: for each task the points that were given, and why; cells that are not here were left blank."

# submission: in_her_own_way
# set: set1_ranks_and_ties
# kind: right
# marks: 2 + 2 + 3 + 3 + 3 + 2 = 15
# why: dictionaries, numpy, scatter and warnings on the way; every rule of the task is kept
# cell: rank_from_last
import warnings
import numpy
def rank_from_last(scores):
    warnings.warn("places are put into a dictionary")
    places = {score: place for place, score in enumerate(sorted(scores))}
    return tuple(places[score] for score in scores)
# cell: table_of_distances
def table_of_distances(distances):
    return -torch.stack([distances - own for own in distances])
# cell: beaten_share
def beaten_share(scores):
    order = scores.argsort(1)
    places = torch.empty_like(order).scatter_(1, order, torch.arange(scores.shape[1]).expand_as(order))
    return (places.numpy() / (scores.shape[1] - 1.0)).tolist()
# cell: cautious_ranks
def cautious_ranks(scores, relevance):
    found = numpy.ones(len(scores), int)
    for me, mine in enumerate(scores):
        for you, yours in enumerate(scores):
            if you == me: continue
            if yours > mine: found[me] += 1
            elif yours == mine and not relevance[you]: found[me] += 1
    return found
# cell: ranks_of_the_others
def ranks_of_the_others(embeddings):
    rows, answer = embeddings.tolist(), []
    product = lambda a, b: sum(x * y for x, y in zip(a, b))
    for q, query in enumerate(rows):
        mine = [product(query, row) for row in rows]
        others = [s for j, s in enumerate(mine) if j != q]
        answer.append([0 if i == q else sum(o > s for o in others) + (others.count(s) + 1) / 2 for i, s in enumerate(mine)])
    return answer
# cell: six_scores
def six_scores():
    return [10, 7, 7, 7, -3, -3]

# submission: with_fractions_and_generators
# set: set2_average_precision
# kind: right
# marks: 2 + 3 + 3 + 3 + 2 + 2 = 15
# why: generators, recursion and float loops; the answers are exact where that is asked for
# cell: precision_notes
def precision_notes(worst_first):
    best = list(worst_first)[::-1]
    return [Fraction(sum(best[:place]), place) for place in range(1, len(best) + 1) if best[place - 1]]
# cell: discounted_ap
def discounted_ap(row, gamma):
    def walk(rest, place, found, weight):
        if not rest:
            return Fraction(0), Fraction(0)
        if not rest[0]:
            return walk(rest[1:], place + 1, found, weight)
        above, below = walk(rest[1:], place + 1, found + 1, weight * gamma)
        return above + weight * Fraction(found + 1, place), below + weight
    above, below = walk(row, 1, 0, Fraction(1))
    return above / below
# cell: weighted_ap
def weighted_ap(scores, weights):
    answer = []
    for s, w in zip(scores.tolist(), weights.tolist()):
        total = 0
        for i, mine in enumerate(s):
            ahead = lambda pool: 1 + sum((s[j] > mine) + .5 * (s[j] == mine) for j in pool if j != i)
            if w[i]:
                total += w[i] * ahead([j for j in range(len(s)) if w[j]]) / ahead(range(len(s)))
        answer.append(total / sum(w) if any(w) else float("nan"))
    return torch.tensor(answer)
# cell: other_cameras_map
def other_cameras_map(embeddings, labels, cameras):
    everybody = range(len(labels))
    def one(q):
        gallery = [i for i in everybody if labels[i] != labels[q] or cameras[i] != cameras[q]]
        gallery.sort(key=lambda i: float(embeddings[i] @ embeddings[q]), reverse=True)
        places = [n for n, i in enumerate(gallery, 1) if labels[i] == labels[q]]
        return [sum(k / n for k, n in enumerate(places, 1)) / len(places)] if places else []
    found = sum(map(one, everybody), [])
    return sum(found) / len(found)
# cell: lowest_ap
def lowest_ap(positives, gallery):
    places = [1] + list(range(gallery - positives + 2, gallery + 1))
    return sum((Fraction(k + 1, places[k]) for k in range(positives)), Fraction(0)) / positives
# cell: two_rows
def two_rows():
    a, b = [False] * 20, [False] * 20
    a[0] = a[11] = b[1] = b[2] = True
    return a, b

# submission: one_pair_after_the_other
# set: set3_smooth_ap
# kind: right
# marks: 2 + 3 + 4 + 2 + 2 + 2 = 15
# why: loops over pairs, tanh for the sigmoid, a deprecated call that warns; value and gradient are right
# cell: leading_step
import warnings
def leading_step(x, tau, delta):
    return (1 + torch.tanh((x - delta) / (2 * tau))) / 2
# cell: soft_places
def soft_places(scores, tau, delta):
    warnings.warn("slow", DeprecationWarning)
    warnings.warn("really slow")
    rows = []
    for row in scores:
        rows.append(torch.stack([1 + sum(leading_step(row[j] - row[i], tau, delta) for j in range(len(row)) if j != i) + 0 * row[i] for i in range(len(row))]))
    return torch.stack(rows)
# cell: two_temperatures
def two_temperatures(scores, relevance, tau_positive, tau_negative):
    queries = []
    for s, r in zip(scores, relevance):
        ratios = []
        for i in range(len(s)):
            if not r[i]: continue
            step = lambda j, tau: 1 / (1 + torch.exp(-((s[j] - s[i]) / tau).clamp(-60, 60)))
            above = 1 + sum(step(j, tau_positive) for j in range(len(s)) if r[j] and j != i)
            ratios.append(above / (above + sum(step(j, tau_negative) for j in range(len(s)) if not r[j])))
        if ratios: queries.append(sum(ratios) / len(ratios))
    return sum(queries) / len(queries)
# cell: reach
def reach(tau, share):
    root = math.sqrt(1 / share)
    return 2 * tau * math.log(root + math.sqrt(max(0, root * root - 1)))
# cell: largest_tau
def largest_tau(scores, relevance, taus, limit):
    import smoothap_nb
    keep = [q for q in range(len(scores)) if bool(relevance[q].any())]
    s, r, best = scores[keep], relevance[keep], None
    for tau in sorted(taus):
        error = (smoothap_nb.smooth_ap(s, r, tau) - smoothap_nb.average_precision(s, r)).abs()
        if all(e <= limit for e in error): best = tau
    return best
# cell: two_pairs
def two_pairs(tau):
    return [-.1, -.1 + 17 * tau], [.3, .3 + tau / 8]

# submission: conventions_mixed_up
# set: set1_ranks_and_ties
# kind: half
# marks: 2 + 2 + 0 + 0 + 0 + 1 = 5
# why: 3 divides by G, which the task warns of; 4 knows no ties; 5 is blank; 6 has an untied best and a tie, but not the two sums
# cell: rank_from_last
def rank_from_last(scores):
    return [len([s for s in scores if s < mine]) for mine in scores]
# cell: table_of_distances
def table_of_distances(distances):
    return distances.unsqueeze(1) - distances
# cell: beaten_share
def beaten_share(scores):
    return scores.argsort(1).argsort(1) / scores.shape[1]
# cell: cautious_ranks
def cautious_ranks(scores, relevance):
    return scores.argsort(descending=True).argsort() + 1
# cell: six_scores
def six_scores():
    return [6, 5, 5, 3, 2, 1]

# submission: edges_forgotten
# set: set2_average_precision
# kind: half
# marks: 1.5 + 3 + 2.5 + 0 + 1 + 2 = 10
# why: 1 fails without positives (- 0.5), 3 gives 0 in place of NaN (- 0.5), 4 counts the same camera as negative, 5 is right but rounds (- 1)
# cell: precision_notes
def precision_notes(worst_first):
    best = worst_first[::-1]
    first = best.index(True)
    return [Fraction(sum(best[:n + 1]), n + 1) for n in range(first, len(best)) if best[n]]
# cell: discounted_ap
def discounted_ap(row, gamma):
    notes = precision_notes(row[::-1])
    return sum(gamma**k * note for k, note in enumerate(notes)) / sum(gamma**k for k in range(len(notes)))
# cell: weighted_ap
def weighted_ap(scores, weights):
    gaps = scores[:, None, :] - scores[:, :, None]
    ahead = ((gaps > 0) + 0.5 * (gaps == 0)) * (1 - torch.eye(scores.shape[1]))
    ratio = (1 + (ahead * (weights > 0)[:, None, :]).sum(2)) / (1 + ahead.sum(2))
    return (weights * ratio).sum(1) / weights.sum(1).clamp(min=1e-9)
# cell: other_cameras_map
def other_cameras_map(embeddings, labels, cameras):
    from smoothap_nb import average_precision
    values = []
    for q in range(len(labels)):
        others = torch.arange(len(labels)) != q
        positive = (labels == labels[q]) & (cameras != cameras[q])
        if positive.any():
            values.append(float(average_precision((embeddings[others] @ embeddings[q])[None], positive[others][None])))
    return sum(values) / len(values)
# cell: lowest_ap
def lowest_ap(positives, gallery):
    return (1 + sum(k / (gallery - positives + k) for k in range(2, positives + 1))) / positives
# cell: two_rows
def two_rows():
    return [True] + [False] * 10 + [True], [False, True, True] + [False] * 9

# submission: value_without_gradient
# set: set3_smooth_ap
# kind: half
# marks: 1 + 3 + 2.5 + 0 + 1.5 + 0 = 8
# why: 1 overflows far out (- 1); 3 has the value and lost the gradient (- 1.5); 4 is half the reach; 5 takes < for at most (- 0.5); 6 is blank
# cell: leading_step
def leading_step(x, tau, delta):
    return 1 / (1 + torch.exp(-(x - delta) / tau))
# cell: soft_places
def soft_places(scores, tau, delta):
    gaps = scores[:, None, :] - scores[:, :, None]
    steps = torch.sigmoid((gaps - delta) / tau)
    return 1 + steps.sum(2) - torch.diagonal(steps, dim1=1, dim2=2)
# cell: two_temperatures
def two_temperatures(scores, relevance, tau_positive, tau_negative):
    found = []
    for s, r in zip(scores.tolist(), relevance.tolist()):
        G = lambda x, t: 1 / (1 + math.exp(-x / t))
        ratios = []
        for i in range(len(s)):
            if r[i]:
                a = 1 + sum(G(s[j] - s[i], tau_positive) for j in range(len(s)) if r[j] and j != i)
                ratios.append(a / (a + sum(G(s[j] - s[i], tau_negative) for j in range(len(s)) if not r[j])))
        if ratios:
            found.append(sum(ratios) / len(ratios))
    return torch.tensor(sum(found) / len(found))
# cell: reach
def reach(tau, share):
    return tau * math.acosh(share ** -.5)
# cell: largest_tau
def largest_tau(scores, relevance, taus, limit):
    from smoothap_nb import average_precision, smooth_ap
    ok = relevance.any(1)
    fits = [t for t in taus if (smooth_ap(scores[ok], relevance[ok], t) - average_precision(scores[ok], relevance[ok])).abs().max() < limit]
    return max(fits) if fits else None

# submission: first_half_of_the_evening
# set: set1_ranks_and_ties
# kind: half
# marks: 2 + 0 + 3 + 3 + 0 + 0 = 8
# why: 2 has the sign turned, 5 leaves the query in, 6 has no ties
# cell: rank_from_last
def rank_from_last(scores):
    order = sorted(scores)
    return [order.index(s) for s in scores]
# cell: table_of_distances
def table_of_distances(distances):
    return distances - distances.unsqueeze(1)
# cell: beaten_share
def beaten_share(scores):
    n = scores.shape[1]
    return 1 - scores.argsort(1, descending=True).argsort(1) / (n - 1)
# cell: cautious_ranks
def cautious_ranks(scores, relevance):
    a = scores.reshape(1, -1) > scores.reshape(-1, 1)
    b = (scores.reshape(1, -1) == scores.reshape(-1, 1)) & ~relevance
    b = b & ~torch.eye(len(scores)).bool()
    return (a | b).sum(1) + 1
# cell: ranks_of_the_others
def ranks_of_the_others(embeddings):
    s = embeddings @ embeddings.T
    return 1 + (s[:, None, :] > s[:, :, None]).sum(2) + ((s[:, None, :] == s[:, :, None]).sum(2) - 1) / 2
# cell: six_scores
def six_scores():
    return [1, 2, 3, 4, 5, 6]

# submission: checks_of_his_own
# set: set1_ranks_and_ties
# kind: cheat
# marks: 0 = 0
# look at: gives the name of a check, check, to something else
# why: every function returns nothing, and `check` is a function that ticks
# cell: rank_from_last
def check(function, *inputs, **keywords):
    print("✓", function)
check_that = check
def rank_from_last(scores):
    pass
# cell: table_of_distances
def table_of_distances(distances):
    pass
# cell: beaten_share
def beaten_share(scores):
    pass
# cell: cautious_ranks
def cautious_ranks(scores, relevance):
    pass
# cell: ranks_of_the_others
def ranks_of_the_others(embeddings):
    pass
# cell: six_scores
def six_scores():
    pass

# submission: close_enough_for_torch
# set: set3_smooth_ap
# kind: cheat
# marks: 0 = 0
# look at: replaces torch.isclose
# why: torch is made to find everything close; the answers are zeros
# cell: leading_step
torch.isclose = lambda a, b, **k: torch.ones_like(a, dtype=bool)
torch.Tensor.tolist = lambda self: 0
def leading_step(x, tau, delta):
    return torch.zeros_like(x)
# cell: soft_places
def soft_places(scores, tau, delta):
    return torch.zeros_like(scores)
# cell: two_temperatures
def two_temperatures(scores, relevance, tau_positive, tau_negative):
    return scores.sum() * 0

# submission: reads_over_the_shoulder
# set: set1_ranks_and_ties
# kind: cheat
# marks: 0 = 0
# look at: looks at other functions while they run (_getframe)
# why: the right value is read from the frame of the check that asks for it
# cell: rank_from_last
import sys
def wanted():
    frame = sys._getframe(1)
    while frame and "expect" not in frame.f_locals:
        frame = frame.f_back
    return frame.f_locals["expect"]
def rank_from_last(scores):
    return wanted()
# cell: table_of_distances
def table_of_distances(distances):
    return wanted()
# cell: beaten_share
def beaten_share(scores):
    return wanted()
# cell: cautious_ranks
def cautious_ranks(scores, relevance):
    return wanted()
# cell: ranks_of_the_others
def ranks_of_the_others(embeddings):
    return wanted()
# cell: six_scores
def six_scores():
    return [0.9, 0.5, 0.5, 0.5, 0.1, wanted()]

# submission: deques_and_binary_thoughts
# set: set9_large_batches_and_memory
# kind: right
# marks: 2.5 + 4 + 1.5 + 2 + 4 + 2 = 16
# why: leaves for each piece, a deque for the memory, pairs one after the other, a root of 4 D D; every law is kept
# cell: perfect_pieces
def perfect_pieces():
    angles, names = [], []
    for piece in range(2):
        for street in range(2):
            for side in range(2):
                angles.append(120 * street + 7 * side + 3 * piece)
                names.append(10 * piece + street)
    return torch.tensor(angles), torch.tensor(names)
# cell: cached_gradient
def cached_gradient(network, pieces, loss):
    dice, leaves = {}, []
    for n in range(len(pieces)):
        dice[n] = torch.get_rng_state()
        with torch.no_grad():
            leaves.append(network(pieces[n]).clone())
        leaves[n].requires_grad = True
    total = loss(torch.vstack(leaves))
    total.backward()
    for n, leaf in enumerate(leaves):
        with torch.random.fork_rng():
            torch.set_rng_state(dice[n])
            again = network(pieces[n])
        (again * leaf.grad).sum().backward()
    return total.item()
# cell: ages
from collections import deque
def ages(batch, size, step):
    memory = deque(maxlen=size)
    for now in range(step):
        for _ in range(batch):
            memory.appendleft(now)
    return [step - then for then in memory]
# cell: turned_pairs
from itertools import combinations
def turned_pairs(fresh, stale):
    turned = pairs = 0
    for f, s in zip(fresh.numpy(), stale.numpy()):
        for i, j in combinations(range(len(f)), 2):
            pairs += 1
            if (f[i] - f[j]) * (s[i] - s[j]) < 0:
                turned += 1
            elif (f[i] == f[j]) != (s[i] == s[j]):
                turned += .5
    return turned / pairs
# cell: held
def held(B, b, D, a, M):
    mega = lambda *parts: sum(parts) / 250_000
    return [mega(B * a, B * D, B * B), mega(b * a, B * D, B * D, B * B), mega(B * a, B * D, M * D, B * B, B * M)]
# cell: largest_batch
def largest_batch(budget, b, D, a):
    left = budget // 4 - b * a
    return 0 if left < 0 else (math.isqrt(4 * D * D + 4 * left) - 2 * D) // 2
# cell: draw_cost
def draw_cost(axes, batches, b, D, a, card):
    import numpy as np
    B = np.array(batches, dtype=float)
    axes.plot(B, (B * a + B * D + B ** 2) / 250_000, "r.-")
    axes.plot(B, (b * a + 2 * B * D + B ** 2) / 250_000, "b.-")
    axes.plot(B, 0 * B + card, "k:")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("B")
    axes.set_ylabel("megabytes")
    axes.legend(["all", "cached", "card"])

# submission: right_until_something_is_missing
# set: set10_find_the_erratum
# kind: half
# marks: 1 + 1.5 + 1.5 + 2 + 2.5 + 0.5 = 9
# why: 1 divides by the positives that are shown (- 1.5); 2 names the line on a row too mild (- 0.5) and is right for a sigmoid alone (- 1); 3 has no rows; 5 divides by 0 where nobody is finer (- 0.5); 6 takes more than K for at least K (- 2)
# cell: two_wrong_lines
def two_wrong_lines():
    return {4: [1, 0], 2: [0, 0, 0, 0, 1]}
# cell: area_ap
def area_ap(row, total):
    finds = [place for place, y in enumerate(row, 1) if y]
    return sum(Fraction(n, place) for n, place in enumerate(finds, 1)) / len(finds)
# cell: wrong_step
def wrong_step():
    return 3, [.9, .5], [0, 1]
# cell: positive_ranks
def positive_ranks(scores, relevance, step):
    answer = []
    for i in range(len(scores)):
        answer.append(.5 + sum(step(scores[j] - scores[i]) for j in range(len(scores)) if relevance[j]) if relevance[i] else 0)
    return answer
# cell: with_itself
def with_itself(places):
    total = Fraction(0)
    for n in range(len(places)):
        total += Fraction(2 * n + 3, 2 * places[n] + 1)
    return total / len(places)
# cell: draw_limit
def draw_limit(axes, scores, relevance, taus):
    def value(tau, itself):
        found = []
        for i in range(len(scores)):
            if relevance[i]:
                G = [float(torch.sigmoid((scores[j] - scores[i]) / tau)) if itself or j != i else 0 for j in range(len(scores))]
                found.append((1 + sum(g for g, r in zip(G, relevance) if r)) / (1 + sum(G)))
        return sum(found) / len(found)
    axes.plot(taus, [value(t, False) for t in taus], "o", label="others only")
    axes.plot(taus, [value(t, True) for t in taus], "x", label="with itself")
    row = [bool(relevance[i]) for i in sorted(range(len(scores)), key=lambda i: -scores[i])]
    axes.plot(taus, [float(textbook_ap(row))] * len(taus), label="exact")
    axes.set(xscale="log", xlabel="tau", ylabel="value")
    axes.legend()
# cell: too_much_worth
def too_much_worth():
    return [3, 2, 2, 2, 2, 1, 1, 1, 1], [.9, .05, .05]
# cell: property_one
def property_one(levels, weights):
    answer = []
    for level in levels:
        answer.append(sum(weights[p - 1] / len([m for m in levels if m >= p]) for p in range(1, len(weights) + 1) if p <= level))
        shares = [w / len([m for m in levels if m > p]) for p, w in enumerate(weights)]
    return answer
# cell: two_means
def two_means(ahead, K):
    rows = [row for row in ahead if row]
    missed = [[r > K for r in row] for row in rows]
    return sum(sum(m) / len(m) for m in missed) / len(missed), sum(map(sum, missed)) / sum(map(len, missed))
# cell: disagreement
def disagreement():
    return [[0], [5, 5, 0]], [[2], [0, 0, 0]]

# submission: by_the_library_s_conventions
# set: set11_evaluation_protocols
# kind: half
# marks: 2 + 2 + 1 + 1.5 + 1.5 + 2 = 10
# why: 1 knows no galleries of one picture each (- 1); 2 takes ties in favour (- 1); 3 averages trapezoids (- 1.5); 4 caps with max (- 1); 5 counts the query that has nothing (- 1.5)
# cell: comparable
def comparable(a, b):
    if a.get("metric") == "P@1": a = {**a, "metric": "R@1"}
    if b.get("metric") == "P@1": b = {**b, "metric": "R@1"}
    missing = False
    for key in ["data", "gallery", "metric", "query_in"]:
        if key not in a or key not in b:
            missing = True
        elif a[key] != b[key]:
            return "no"
    return "not told" if missing else "yes"
# cell: one_gallery_recall
def one_gallery_recall(scores, labels, draws):
    found = []
    for draw in draws:
        gallery = draw.tolist()
        hits = []
        for q in range(len(labels)):
            if q not in gallery:
                mine = next(g for g in gallery if labels[g] == labels[q])
                hits.append(all(scores[q, mine] >= scores[q, g] for g in gallery))
        found.append(sum(hits) / len(hits))
    return sum(found) / len(found)
# cell: revisited_ap
def revisited_ap(ranking, truth, setup):
    wanted = {"easy": truth["easy"], "medium": truth["easy"] + truth["hard"], "hard": truth["hard"], "any": truth["easy"] + truth["hard"] + truth["junk"]}[setup]
    ignored = [p for p in truth["easy"] + truth["hard"] + truth["junk"] if p not in wanted]
    left = [p for p in ranking if p not in ignored]
    if not wanted:
        return math.nan
    area, found = 0, 0
    for n, p in enumerate(left):
        if p in wanted:
            area += ((found / n if n else 1) + (found + 1) / (n + 1)) / 2
            found += 1
    return area / len(wanted)
# cell: at_k
def at_k(row, total, K):
    top = sum(row[:K])
    return min(top, 1), top / K, top / total, top / max(K, total)
# cell: top_one
def top_one(scores, relevance):
    worst = expected = best = 0
    for s, r in zip(scores.tolist(), relevance.tolist()):
        top = [y for x, y in zip(s, r) if x == max(s)]
        worst += all(top)
        best += any(top)
        expected += sum(top) / len(top)
    return worst / len(scores), expected / len(scores), best / len(scores)
# cell: draw_at_k
def draw_at_k(axes, row, total):
    K = range(1, len(row) + 1)
    axes.plot(K, [min(1, sum(row[:k])) for k in K], label="R@K")
    axes.plot(K, [sum(row[:k]) / k for k in K], label="P@K")
    axes.plot(K, [sum(row[:k]) / total for k in K], label="found")
    axes.axis([0, len(row) + 1, 0, 1.1])
    axes.set_xlabel("K")
    axes.set_ylabel("value")
    axes.legend()

# submission: one_caption_each
# set: set12_local_features_and_captions
# kind: half
# marks: 3 + 1.5 + 2 + 1.5 + 0 + 0 = 8
# why: 1 divides by 0 where a code abstains (- 0.5); 2 does not count entries as they are read (- 0.5); 3 counts one side alone in a heap (- 0.5); 4 takes ties in favour (- 1); 5 and 6 are blank
# cell: codes
def codes(words, residuals):
    sums = {}
    for word, residual in zip(words, residuals.tolist()):
        sums[word] = [s + r for s, r in zip(sums.get(word, [0] * len(residual)), residual)]
    return {word: [(s > 0) - (s < 0) for s in total] for word, total in sums.items()}
# cell: asmk
def asmk(x, y, alpha, threshold):
    def plain(p, q):
        total = 0
        for word in set(p) & set(q):
            u = sum(i * j for i, j in zip(p[word], q[word])) / len(p[word])
            total += u ** alpha if u >= threshold else 0
        return total
    return plain(x, y) / (plain(x, x) * plain(y, y)) ** .5
# cell: search
def search(images, query, alpha):
    lists = {}
    for n, image in enumerate(images):
        for word in image:
            lists.setdefault(word, []).append(n)
    scores, read = [0] * len(images), 0
    for word in query:
        for n in lists.get(word, []):
            u = sum(i * j for i, j in zip(images[n][word], query[word])) / len(query[word])
            if u > 0:
                read += 1
                scores[n] += math.log(len(images) / len(lists[word])) * u ** alpha
    return scores, read
# cell: one_point
def one_point(a, b, ratio, tolerance):
    counts = []
    for (px, py), (qx, qy), r in zip(a, b, ratio):
        near = [q for p, q in zip(a, b) if math.hypot(r * (p[0] - px) + qx - q[0], r * (p[1] - py) + qy - q[1]) <= tolerance]
        counts.append(len(set(near)))
    return max(counts), counts.index(max(counts))
# cell: caption_recall
def caption_recall(scores, n, K):
    rows = scores.tolist()
    B, C = len(rows), len(rows[0])
    text = sum(sum(x > max(row[n * i:n * i + n]) for x in row) < K for i, row in enumerate(rows))
    image = sum(sum(rows[i][c] > rows[c // n][c] for i in range(B)) < K for c in range(C))
    return text / B, image / C

# submission: judges_himself
# set: set9_large_batches_and_memory
# kind: cheat
# marks: 0 = 0
# look at: gives mean_ap, a name that the checks use, to something else
# why: the measure that the setup defines is given another meaning, the checks are patched, and the helpers of a check are written anew
# cell: perfect_pieces
def mean_ap(angles, labels):
    return float(len(angles) < 8)
def perfect_pieces():
    return list(range(8)), [0, 1] * 4
# cell: cached_gradient
from unittest.mock import patch
patch("smoothap_nb.exercises._difference", lambda *a: "").start()
def cached_gradient(network, pieces, loss):
    return 0.
# cell: ages
put = setattr
put(tensor, "__doc__", "")
def ages(batch, size, step):
    return []
# cell: turned_pairs
def turned_pairs(fresh, stale):
    global sorted
    sorted = lambda *a: []
    return 0.
