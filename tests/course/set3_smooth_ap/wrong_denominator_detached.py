# cell: two_temperatures
# fails: test_two_temperatures
# says: a part of the formula was detached
def two_temperatures(scores, relevance, tau_positive, tau_negative):
    tau = torch.where(relevance[:, None, :], tau_positive, tau_negative)
    steps = torch.sigmoid((scores[:, None, :] - scores[:, :, None]) / tau) * (1 - torch.eye(scores.shape[1], dtype=scores.dtype))
    among_positives = 1 + (steps * relevance[:, None, :]).sum(2)
    found = relevance.sum(1)
    return ((among_positives / (1 + steps.sum(2)).detach() * relevance).sum(1) / found.clamp(min=1))[found > 0].mean()
