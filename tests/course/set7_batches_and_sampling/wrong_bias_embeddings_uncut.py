# cell: batch_bias
# fails: test_batch_bias
# says: must see the embeddings and the labels of just the images
def batch_bias(measure, embeddings, labels, classes, draws, seed):
    rng, names, values = np.random.default_rng(seed), labels.unique().numpy(), []
    for _ in range(draws):
        chosen = torch.isin(labels, torch.as_tensor(rng.choice(names, classes, replace=False)))
        values.append(measure(embeddings, labels[chosen]))
    return sum(values) / draws - measure(embeddings, labels)
