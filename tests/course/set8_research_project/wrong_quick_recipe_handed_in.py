# cell: submission
# fails: test_submission
# says: fits the quick budget
def full_recipe():
    return {"width": 8, "steps": 300, "lr": 1e-2}


def claim():
    return 0.7
