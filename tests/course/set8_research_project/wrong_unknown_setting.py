# cell: quick_recipe
# fails: test_quick_recipe
# says: unknown setting
def quick_recipe():
    return {"learning_rate": 0.01}
