"Wrong answers that somebody gave: each section is a whole submission, its cells, the checks that fail, and what they say."

# answer: argsort_once
# cell: rank_from_last
# fails: test_rank_from_last
# says: argsort-once
def rank_from_last(scores):
    return sorted(range(len(scores)), key=scores.__getitem__)


# answer: best_tied
# cell: six_scores
# fails: test_six_scores_best
# says: the best item is tied
def six_scores():
    return [0.9, 0.9, 0.9, 0.5, 0.1, 0.1]


# answer: exchanged
# cell: cautious_ranks
# fails: test_cautious_ranks
# says: POSITIVES AND NEGATIVES EXCHANGED
def cautious_ranks(scores, relevance):
    gaps = scores[None, :] - scores[:, None]
    ahead = (gaps > 0) | ((gaps == 0) & relevance[None, :])
    return 1 + ahead.fill_diagonal_(False).sum(1)


# answer: from_the_best
# cell: rank_from_last
# fails: test_rank_from_last
# says: reversed
def rank_from_last(scores):
    return [sum(other > score for other in scores) for score in scores]


# answer: no_ties
# cell: six_scores
# fails: test_six_scores, test_six_scores_best
# says: NO TIES AT ALL
def six_scores():
    return [0.9, 0.8, 0.5, 0.4, 0.2, 0.1]


# answer: one_tie_of_three
# cell: six_scores
# fails: test_six_scores
# says: ONE TIE OF THREE
def six_scores():
    return [0.9, 0.5, 0.5, 0.5, 0.2, 0.1]


# answer: others_self_counted
# cell: ranks_of_the_others
# fails: test_ranks_of_the_others
# says: self-counted
def ranks_of_the_others(embeddings):
    scores = (embeddings @ embeddings.T).fill_diagonal_(-torch.inf)
    ahead, level = (scores[:, None, :] > scores[:, :, None]).sum(2), (scores[:, None, :] == scores[:, :, None]).sum(2)
    return (ahead + 1 + level / 2).fill_diagonal_(0)


# answer: others_ties_ahead
# cell: ranks_of_the_others
# fails: test_ranks_of_the_others
# says: ties-ahead
def ranks_of_the_others(embeddings):
    scores = (embeddings @ embeddings.T).fill_diagonal_(-torch.inf)
    ahead, level = (scores[:, None, :] > scores[:, :, None]).sum(2), (scores[:, None, :] == scores[:, :, None]).sum(2)
    return (ahead + level).fill_diagonal_(0)


# answer: others_ties_behind
# cell: ranks_of_the_others
# fails: test_ranks_of_the_others
# says: ties-behind
def ranks_of_the_others(embeddings):
    scores = (embeddings @ embeddings.T).fill_diagonal_(-torch.inf)
    ahead, level = (scores[:, None, :] > scores[:, :, None]).sum(2), (scores[:, None, :] == scores[:, :, None]).sum(2)
    return (ahead + 1.0).fill_diagonal_(0)


# answer: others_zero_based
# cell: ranks_of_the_others
# fails: test_ranks_of_the_others
# says: zero-based
def ranks_of_the_others(embeddings):
    scores = (embeddings @ embeddings.T).fill_diagonal_(-torch.inf)
    ahead, level = (scores[:, None, :] > scores[:, :, None]).sum(2), (scores[:, None, :] == scores[:, :, None]).sum(2)
    return (ahead + (level - 1) / 2).fill_diagonal_(0)


# answer: query_left_in
# cell: ranks_of_the_others
# fails: test_ranks_of_the_others
# says: query-left-in
def ranks_of_the_others(embeddings):
    scores = embeddings @ embeddings.T
    ahead, level = (scores[:, None, :] > scores[:, :, None]).sum(2), (scores[:, None, :] == scores[:, :, None]).sum(2)
    return (ahead + (level + 1) / 2).fill_diagonal_(0)


# answer: query_ranked
# cell: ranks_of_the_others
# fails: test_ranks_of_the_others
# says: THE QUERY LEFT IN, and ranked
def ranks_of_the_others(embeddings):
    scores = embeddings @ embeddings.T
    ahead, level = (scores[:, None, :] > scores[:, :, None]).sum(2), (scores[:, None, :] == scores[:, :, None]).sum(2)
    return ahead + (level + 1) / 2


# answer: self_counted
# cell: cautious_ranks
# fails: test_cautious_ranks
# says: self-counted
def cautious_ranks(scores, relevance):
    gaps = scores[None, :] - scores[:, None]
    return 1 + ((gaps > 0) | ((gaps == 0) & ~relevance[None, :])).sum(1)


# answer: share_argsort_once
# cell: beaten_share
# fails: test_beaten_share
# says: argsort-once
def beaten_share(scores):
    return scores.argsort(dim=1) / (scores.shape[1] - 1)


# answer: share_of_all
# cell: beaten_share
# fails: test_beaten_share
# says: DIVIDED BY G
def beaten_share(scores):
    return scores.argsort(dim=1).argsort(dim=1) / scores.shape[1]


# answer: share_one_based
# cell: beaten_share
# fails: test_beaten_share
# says: zero-based
def beaten_share(scores):
    return (1 + scores.argsort(dim=1).argsort(dim=1)) / (scores.shape[1] - 1)


# answer: share_reversed
# cell: beaten_share
# fails: test_beaten_share
# says: reversed
def beaten_share(scores):
    return scores.argsort(dim=1, descending=True).argsort(dim=1) / (scores.shape[1] - 1)


# answer: sign
# cell: table_of_distances
# fails: test_table_of_distances
# says: sign
def table_of_distances(distances):
    return distances[None, :] - distances[:, None]


# answer: ties_ahead
# cell: cautious_ranks
# fails: test_cautious_ranks
# says: ties-ahead
def cautious_ranks(scores, relevance):
    return (scores[None, :] >= scores[:, None]).sum(1)


# answer: ties_behind
# cell: cautious_ranks
# fails: test_cautious_ranks
# says: ties-behind
def cautious_ranks(scores, relevance):
    return 1 + (scores[None, :] > scores[:, None]).sum(1)


# answer: zero_based
# cell: rank_from_last
# fails: test_rank_from_last
# says: zero-based
def rank_from_last(scores):
    return [1 + sum(other < score for other in scores) for score in scores]


# answer: order_within_a_tie
# cell: cautious_ranks
# fails: test_cautious_ranks
# says: ONLY ITEMS WITH EQUAL SCORES
def cautious_ranks(scores, relevance):
    # positives first within a tie
    order = sorted(range(len(scores)), key=lambda i: (-float(scores[i]), bool(relevance[i])))
    ranks = [0] * len(scores)
    for place, i in enumerate(order, 1):
        ranks[i] = place
    return ranks


# answer: the_row_sorted
# cell: beaten_share
# fails: test_beaten_share
# says: ANOTHER ORDER
def beaten_share(scores):
    out = []
    for row in scores:
        row = row.sort().values
        out.append([int((row == s).nonzero()[0]) / (len(row) - 1) for s in row])
    return out
