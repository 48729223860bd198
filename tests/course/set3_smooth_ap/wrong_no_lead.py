# cell: soft_places
# fails: test_soft_places
# says: NO LEAD
def soft_places(scores, tau, delta):
    steps = torch.sigmoid((scores[:, None, :] - scores[:, :, None]) / tau) * (1 - torch.eye(scores.shape[1], dtype=scores.dtype))
    return 1 + steps.sum(2)
