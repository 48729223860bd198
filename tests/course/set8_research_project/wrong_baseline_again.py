# cell: quick_recipe
# fails: test_quick_recipe
# says: One change at a time
def quick_recipe():
    return {"strength": 1.0}
