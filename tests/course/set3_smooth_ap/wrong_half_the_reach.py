# cell: reach
# fails: test_reach
# says: HALF THE REACH
def reach(tau, share):
    return tau * math.acosh(1 / math.sqrt(share))
