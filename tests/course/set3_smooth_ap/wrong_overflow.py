# cell: leading_step
# fails: test_leading_step
# says: exp overflowed
def leading_step(x, tau, delta):
    e = torch.exp(-(x - delta) / tau)
    return torch.where(e.isinf(), 0.0, 1 / (1 + e))
