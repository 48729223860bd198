# cell: steps
# fails: test_steps
# says: the wrong side
def upper(t):
    return torch.where(t <= 0, torch.exp(t.clamp(max=0) / .02), 1 + t / .02)


def lower(t):
    return torch.where(t <= 0, 4 * t, (10 * t + .25).clamp(max=1))


def violation(step, side):
    near = 10 ** torch.linspace(-6, 0, 500, dtype=torch.float64)
    t = torch.cat([near, -near, torch.linspace(-2, 2, 4000, dtype=torch.float64)])
    excess = step(t) - (t > 0).double()
    return max(0., float((-excess if side == "lower" else excess)[t > 0].max()))
