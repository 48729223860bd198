# cell: submission
# fails: test_submission
# says: not in percent
def full_recipe():
    return {"width": 12, "classes": 32, "steps": 2500, "lr": 1e-2}


def claim():
    return 71.5
