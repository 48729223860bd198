# cell: steps
# fails: test_steps
# says: too coarse around 0
def upper(t):
    return torch.where(t <= 0, torch.exp(t.clamp(max=0) / .02), 1 + t / .02)


def lower(t):
    return torch.where(t <= 0, 4 * t, (10 * t + .25).clamp(max=1))


def violation(step, side):
    t = torch.linspace(-2, 2, 400, dtype=torch.float64)
    excess = step(t) - (t > 0).double()
    return max(0., float((excess if side == "lower" else -excess).max()))
