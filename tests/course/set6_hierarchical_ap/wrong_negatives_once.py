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
