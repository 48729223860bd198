# cell: batch_bias
# fails: test_batch_bias
# says: the difference the wrong way round
def batch_bias(measure, embeddings, labels, classes, draws, seed):
    rng, names, values = np.random.default_rng(seed), labels.unique().numpy(), []
    for _ in range(draws):
        chosen = torch.isin(labels, torch.as_tensor(rng.choice(names, classes, replace=False)))
        values.append(measure(embeddings[chosen], labels[chosen]))
    return measure(embeddings, labels) - sum(values) / draws
