"Metrics: what a ranking is worth."
