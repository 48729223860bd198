# cell: batch_bias
# fails: test_batch_bias
# says: make one generator from the seed
def batch_bias(measure, embeddings, labels, classes, draws, seed):
    names, values = labels.unique().numpy(), []
    for _ in range(draws):
        chosen = torch.isin(labels, torch.as_tensor(np.random.default_rng(seed).choice(names, classes, replace=False)))
        values.append(measure(embeddings[chosen], labels[chosen]))
    return sum(values) / draws - measure(embeddings, labels)
