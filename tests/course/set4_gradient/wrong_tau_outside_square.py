# cell: step_slope
# fails: test_step_slope
# says: TAU WHERE IT DOES NOT BELONG
def step_slope(x, tau):
    return 1 / (math.pi * tau * (1 + x**2))
