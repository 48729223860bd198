# cell: soft_places
# fails: test_soft_places
# says: sign
def soft_places(scores, tau, delta):
    steps = torch.sigmoid((scores[:, :, None] - scores[:, None, :] - delta) / tau) * (1 - torch.eye(scores.shape[1], dtype=scores.dtype))
    return 1 + steps.sum(2)
