# cell: submission
# fails: test_submission
# says: the full budget is 400
def full_recipe():
    return {"width": 64, "steps": 5000}


def claim():
    return 0.7
