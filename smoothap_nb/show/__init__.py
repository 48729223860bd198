"Figures, players, RankLab, reports."
