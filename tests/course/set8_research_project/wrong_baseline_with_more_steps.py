# cell: submission
# fails: test_submission
# says: is no project
def full_recipe():
    return {"steps": 5000}


def claim():
    return 0.7
