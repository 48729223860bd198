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
