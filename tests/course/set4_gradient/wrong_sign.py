# cell: soft_counts
# fails: test_soft_counts
# says: sign
def soft_counts(scores, relevance, tau):
    steps = 0.5 + torch.atan((scores[relevance][:, None] - scores[None, :]) / tau) / math.pi
    return 0.5 + steps[:, relevance].sum(1), 0.5 + steps.sum(1)
