# cell: weighted_ap
# fails: test_weighted_ap
# says: WEIGHTS IN THE RANKS
def weighted_ap(scores, weights):
    gaps = scores[:, None, :] - scores[:, :, None]
    ahead = (gaps > 0).double() + 0.5 * (gaps == 0)
    ahead = ahead * (1 - torch.eye(scores.shape[1], dtype=torch.float64))
    among_all, among_positives = 1 + ahead.sum(2), 1 + (ahead * (weights > 0)[:, None, :]).sum(2)
    return (weights * (1 + (ahead * weights[:, None, :]).sum(2)) / among_all).sum(1) / weights.sum(1)
