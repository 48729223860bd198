"Wrong answers that somebody gave: each section is a whole submission, its cells, the checks that fail, and what they say."

# answer: all_pictures_ask
# cell: one_gallery_recall
# fails: test_one_gallery_recall
# says: 11-one_gallery_recall-1
def one_gallery_recall(scores, labels, draws):
    values = []
    for answers in draws:
        table, same = scores[:, answers], labels[:, None] == labels[answers]
        values.append((table[same] > table.masked_fill(same, -math.inf).max(1).values).double().mean())
    return float(torch.stack(values).mean())


# answer: best_from_the_sure
# cell: top_one
# fails: test_top_one
# says: 11-top_one-3
def top_one(scores, relevance):
    first = scores == scores.max(1, keepdim=True).values
    share = ((first & relevance).sum(1).double() / first.sum(1))[relevance.any(1)]
    alone = (first.sum(1) == 1)[relevance.any(1)]
    return float((alone & (share == 1)).double().mean()), float(share.mean()), float((share > 0).double().mean())


# answer: counted_hits
# cell: at_k
# fails: test_at_k
# says: 11-at_k-4
def at_k(row, total, K):
    hits = sum(row[:K])
    return hits, hits / K, hits / total, hits / min(K, total)


# answer: curves_from_zero
# cell: draw_at_k
# fails: test_draw_at_k
# says: K STARTS AT ANOTHER NUMBER
def draw_at_k(axes, row, total):
    hits = tensor(row).cumsum(0).double()
    for values, label in (((hits > 0).double(), "hit rate"), (hits / torch.arange(1, len(row) + 1), "precision"), (hits / total, "share")):
        axes.plot(values.tolist(), label=label)
    axes.set(xlabel="K", ylabel="value", ylim=(0, 1.05))
    axes.legend()


# answer: cut_off
# cell: draw_at_k
# fails: test_draw_at_k
# says: AN AXIS CUT OFF
def draw_at_k(axes, row, total):
    hits, K = tensor(row).cumsum(0).double(), torch.arange(1, len(row) + 1)
    for values, label in (((hits > 0).double(), "hit rate"), (hits / K, "precision"), (hits / total, "share")):
        axes.plot(K.tolist(), values.tolist(), label=label)
    axes.set(xlabel="K", ylabel="value", ylim=(.2, .9))
    axes.legend()


# answer: divided_by_found
# cell: revisited_ap
# fails: test_revisited_ap
# says: 11-revisited_ap-5
def revisited_ap(ranking, truth, setup):
    kinds = {"easy": ["easy"], "medium": ["easy", "hard"], "hard": ["hard"], "any": ["easy", "hard", "junk"]}[setup]
    wanted = {p for kind in kinds for p in truth[kind]}
    labelled = {p for pictures in truth.values() for p in pictures}
    kept = [p for p in ranking if p in wanted or p not in labelled]
    hits = [place for place, p in enumerate(kept, start=1) if p in wanted]
    if not wanted:
        return math.nan
    return sum(n / place for n, place in enumerate(hits, start=1)) / max(len(hits), 1)


# answer: empty_query_counted
# cell: top_one
# fails: test_top_one
# says: empty-queries
def top_one(scores, relevance):
    first = scores == scores.max(1, keepdim=True).values
    share = (first & relevance).sum(1).double() / first.sum(1)
    return float((share == 1).double().mean()), float(share.mean()), float((share > 0).double().mean())


# answer: even_chances
# cell: top_one
# fails: test_top_one
# says: 11-top_one-2
def top_one(scores, relevance):
    first = scores == scores.max(1, keepdim=True).values
    share = ((first & relevance).sum(1).double() / first.sum(1))[relevance.any(1)]
    worst, best = float((share == 1).double().mean()), float((share > 0).double().mean())
    return worst, (worst + best) / 2, best


# answer: exchanged_at_k
# cell: at_k
# fails: test_at_k
# says: 11-at_k-1
def at_k(row, total, K):
    hits = sum(row[:K])
    return float(hits > 0), hits / total, hits / K, hits / min(K, total)


# answer: length_of_the_list
# cell: at_k
# fails: test_at_k
# says: 11-at_k-7
def at_k(row, total, K):
    hits = sum(row[:K])
    return float(hits > 0), hits / min(K, len(row)), hits / total, hits / min(K, total)


# answer: many_positives_mrr
# cell: comparable
# fails: test_comparable
# says: 11-comparable-3
def comparable(a, b):
    names = {"P@1": "R@1", "MRR": "mAP"}
    pairs = [[p.get(key) for p in (a, b)] for key in ("data", "gallery", "query_in")]
    pairs.append([names.get(p.get("metric"), p.get("metric")) for p in (a, b)])
    if any(x is not None and y is not None and x != y for x, y in pairs):
        return "no"
    return "not told" if any(x is None or y is None for x, y in pairs) else "yes"


# answer: method_compared
# cell: comparable
# fails: test_comparable
# says: 11-comparable-1
def comparable(a, b):
    names = {"P@1": "R@1"}
    if a.get("gallery") == b.get("gallery") == "one of each class":
        names |= {"MRR": "mAP", "mAP@R": "R@1"}
    a, b = ({**p, "metric": names.get(p.get("metric"), p.get("metric"))} for p in (a, b))
    if any(a.get(k) is not None and b.get(k) is not None and a[k] != b[k] for k in {*a, *b}):
        return "no"
    return "not told" if any(p.get(k) is None for p in (a, b) for k in ("data", "gallery", "metric", "query_in")) else "yes"


# answer: missing_is_a_no
# cell: comparable
# fails: test_comparable
# says: 11-comparable-9
def comparable(a, b):
    names = {"P@1": "R@1"}
    if a.get("gallery") == b.get("gallery") == "one of each class":
        names |= {"MRR": "mAP", "mAP@R": "R@1"}
    pairs = [[p.get(key) for p in (a, b)] for key in ("data", "gallery", "query_in")]
    pairs.append([names.get(p.get("metric"), p.get("metric")) for p in (a, b)])
    if any(x != y for x, y in pairs):
        return "no"
    return "not told" if any(x is None for x, _ in pairs) else "yes"


# answer: nobody_deleted
# cell: revisited_ap
# fails: test_revisited_ap
# says: 11-revisited_ap-1
def revisited_ap(ranking, truth, setup):
    kinds = {"easy": ["easy"], "medium": ["easy", "hard"], "hard": ["hard"], "any": ["easy", "hard", "junk"]}[setup]
    wanted = {p for kind in kinds for p in truth[kind]}
    hits = [place for place, p in enumerate(ranking, start=1) if p in wanted]
    return sum(n / place for n, place in enumerate(hits, start=1)) / len(wanted) if wanted else math.nan


# answer: not_told_first
# cell: comparable
# fails: test_comparable
# says: 11-comparable-14
def comparable(a, b):
    keys = ("data", "gallery", "metric", "query_in")
    if any(p.get(k) is None for p in (a, b) for k in keys):
        return "not told"
    names = {"P@1": "R@1"}
    if a["gallery"] == b["gallery"] == "one of each class":
        names |= {"MRR": "mAP", "mAP@R": "R@1"}
    a, b = ({**p, "metric": names.get(p["metric"], p["metric"])} for p in (a, b))
    return "yes" if all(a[k] == b[k] for k in keys) else "no"


# answer: only_junk_deleted
# cell: revisited_ap
# fails: test_revisited_ap
# says: 11-revisited_ap-3
def revisited_ap(ranking, truth, setup):
    kinds = {"easy": ["easy"], "medium": ["easy", "hard"], "hard": ["hard"], "any": ["easy", "hard", "junk"]}[setup]
    wanted = {p for kind in kinds for p in truth[kind]}
    kept = [p for p in ranking if p in wanted or p not in truth["junk"]]
    hits = [place for place, p in enumerate(kept, start=1) if p in wanted]
    return sum(n / place for n, place in enumerate(hits, start=1)) / len(wanted) if wanted else math.nan


# answer: ties_in_favour
# cell: one_gallery_recall
# fails: test_one_gallery_recall
# says: 11-one_gallery_recall-5
def one_gallery_recall(scores, labels, draws):
    values = []
    for answers in draws:
        asks = torch.ones(len(labels), dtype=torch.bool).index_fill(0, answers, False)
        table, same = scores[asks][:, answers], labels[asks][:, None] == labels[answers]
        values.append((table[same] >= table.max(1).values).double().mean())
    return float(torch.stack(values).mean())


# answer: trapezoids
# cell: revisited_ap
# fails: test_revisited_ap
# says: 11-revisited_ap-2
def revisited_ap(ranking, truth, setup):
    kinds = {"easy": ["easy"], "medium": ["easy", "hard"], "hard": ["hard"], "any": ["easy", "hard", "junk"]}[setup]
    wanted = {p for kind in kinds for p in truth[kind]}
    labelled = {p for pictures in truth.values() for p in pictures}
    kept = [p for p in ranking if p in wanted or p not in labelled]
    hits = [place for place, p in enumerate(kept, start=1) if p in wanted]
    halves = [(((n - 1) / (place - 1) if place > 1 else 1) + n / place) / 2 for n, place in enumerate(hits, start=1)]
    return sum(halves) / len(wanted) if wanted else math.nan


# answer: wrong_cap
# cell: at_k
# fails: test_at_k
# says: 11-at_k-6
def at_k(row, total, K):
    hits = sum(row[:K])
    return float(hits > 0), hits / K, hits / total, hits / total


# answer: capital_yes
# cell: comparable
# fails: test_comparable
# says: ANOTHER WORD
def comparable(a, b):
    for k in ("data", "gallery", "metric", "query_in"):
        if a[k] != b[k]: return "No"
    return "Yes"


# answer: falsy_is_missing
# cell: comparable
# fails: test_comparable
# says: 11-comparable-16
def comparable(a, b):
    names = {"P@1": "R@1"}
    if a.get("gallery") == b.get("gallery") == "one of each class":
        names |= {"MRR": "mAP", "mAP@R": "R@1"}
    pairs = [[p.get(key) for p in (a, b)] for key in ("data", "gallery", "query_in")]
    pairs.append([names.get(p.get("metric"), p.get("metric")) for p in (a, b)])
    if any(x and y and x != y for x, y in pairs): return "no"
    return "not told" if any(not x or not y for x, y in pairs) else "yes"


# answer: first_draw_only
# cell: one_gallery_recall
# fails: test_one_gallery_recall
# says: 11-one_gallery_recall-2
def one_gallery_recall(scores, labels, draws):
    for answers in draws:
        asks = torch.ones(len(labels), dtype=torch.bool).index_fill(0, answers, False)
        t, same = scores[asks][:, answers], labels[asks][:, None] == labels[answers]
        return float((t[same] > t.masked_fill(same, -math.inf).max(1).values).double().mean())


# answer: zero_based_precision
# cell: revisited_ap
# fails: test_revisited_ap
# says: 11-revisited_ap-7
def revisited_ap(ranking, truth, setup):
    wanted = {"easy": truth["easy"], "medium": truth["easy"] + truth["hard"], "hard": truth["hard"], "any": sum(truth.values(), [])}[setup]
    gone = [p for v in truth.values() for p in v if p not in wanted]
    kept = [p for p in ranking if p not in gone]
    hits = [n for n, p in enumerate(kept) if p in wanted]
    return sum(k / (n + 1) for k, n in enumerate(hits)) / len(wanted) if wanted else math.nan


# answer: share_of_positives
# cell: top_one
# fails: test_top_one
# says: 11-top_one-9
def top_one(scores, relevance):
    first = scores == scores.max(1, keepdim=True).values
    share = ((first & relevance).sum(1).double() / relevance.sum(1))[relevance.any(1)]
    return float((share == 1).double().mean()), float(share.mean()), float((share > 0).double().mean())


# answer: hit_zero_forgotten
# cell: at_k
# fails: test_at_k
# says: 11-at_k-9
def at_k(row, total, K):
    h = sum(row[:K])
    return 1., h / K, h / total, h / min(K, total)
