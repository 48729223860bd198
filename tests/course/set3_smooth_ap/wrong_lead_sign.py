# cell: leading_step
# fails: test_leading_step
# says: THE LEAD THE WRONG WAY ROUND
def leading_step(x, tau, delta):
    return torch.sigmoid((x + delta) / tau)
