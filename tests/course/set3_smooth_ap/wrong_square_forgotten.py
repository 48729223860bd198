# cell: reach
# fails: test_reach
# says: THE SQUARE FORGOTTEN
def reach(tau, share):
    return 2 * tau * math.acosh(1 / share)
