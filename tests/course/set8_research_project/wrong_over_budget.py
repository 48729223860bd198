# cell: quick_recipe
# fails: test_quick_recipe
# says: the quick budget is 20
def quick_recipe():
    return {"steps": 2000}
