"The papers' experiments and results."
