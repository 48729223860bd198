"""Ranking losses for image retrieval: Average Precision, Smooth-AP and their relatives.

Every public name can be imported from here; its module is loaded at first use, so that
`import smoothap_nb` stays quick and needs torch alone. What a lesson derives is exported from its notebook in `nbs/`,
and such a module says so in its first lines; all other modules are plain files.
"""

from importlib import import_module as _import_module

__version__ = "0.2.0"

# module -> the public names it gives
_PUBLIC = {
    "ranking": ("ranks", "pairwise_differences"),
    "similarity": ("cosine_scores",),
    "losses.base": ("RankingLoss",),
    "metrics.flat": ("average_precision", "recall_at_k", "precision_at_k", "r_precision", "map_at_r"),
    "losses.gradient": ("smooth_ap_with_gradient",),
    "losses.memory": ("EmbeddingMemory",),
    "losses.smooth": ("smooth_ap", "SmoothAPLoss"),
    "losses.blackbox": ("blackbox_ranks", "recall_loss", "blackbox_ap"),
    "losses.blackbox_modules": ("RecallLoss", "BlackboxAPLoss"),
    "losses.map_over_classes": ("MapLoss",),
    "losses.score_memory": ("ScoreMemory",),
    "losses.fastap": ("fast_ap", "FastAPLoss"),
    "metrics.graded": (
        "levels_from_labels",
        "relevance_from_levels",
        "relevance_from_weights",
        "h_ap",
        "ap_at_level",
        "ndcg",
        "asi",
    ),
    "losses.hierarchical": ("step_upper", "step_lower", "smooth_h_ap"),
    "losses.step_settings": ("StepSettings",),
    "losses.happier": ("HAPLoss", "ClusterLoss", "HAPPIERLoss"),
    "losses.surrogates": ("sup_ap", "soft_bin_ap", "calibration_loss"),
    "losses.surrogates_modules": ("SupAPLoss", "SoftBinAPLoss", "CalibrationLoss", "ROADMAPLoss"),
    "losses.cross_scale": ("csl_loss", "CSLLoss"),
    "losses.beyond_ap": ("recall_at_k_surrogate", "sup_recall", "smooth_ndcg", "sup_ndcg", "pnp"),
    "losses.beyond_ap_modules": ("RecallAtKLoss", "SupRecallLoss", "SmoothNDCGLoss", "SupNDCGLoss", "PNPLoss"),
    "losses.sorters": ("SoDeepRanks", "LSTMSorter", "CNNSorter", "train_sorter", "score_lists", "spearman"),
    "losses.any_ranker": ("spearman_loss", "mean_rank_loss", "hardest_rank_loss", "ap_from_ranks", "SoDeepAPLoss"),
    "losses.cross_modal": ("CrossModalLoss",),
    "losses.contrast": ("nt_xent", "contributing_samples"),
    "metrics.two_galleries": ("evaluate_cross_modal",),
    "data.captions": ("GlyphCaptions",),
    "data.karpathy": ("load_captions",),
    "train.text": ("TwoTowers", "load_towers"),
    "metrics.dataset": ("evaluate",),
    "metrics.neighbours": ("nearest_neighbours", "evaluate_neighbours"),
    "metrics.accumulator": ("RetrievalMetrics",),
    "metrics.curves": ("precision_recall_curve",),
    "data.glyphs": ("Glyphs", "glyph_batch", "glyph_statistics"),
    "data.interface": ("RetrievalDataset", "PictureSet"),
    "data.photographs": ("ImageSet",),
    "data.datasets": ("DATASETS", "load_dataset", "load_protocols"),
    "data.protocols": ("Protocol", "evaluate_protocols"),
    "data.checking": ("check_dataset",),
    "data.miniatures": ("make_miniature",),
    "data.sampling": (
        "MPerClassSampler",
        "SuperPairSampler",
        "RandomSuperPairSampler",
        "HierarchicalSampler",
        "OfficialMPerClassSampler",
    ),
    "data.dealing": ("batch_statistics",),
    "data.batch_pictures": ("batch_picture",),
    "train.models": ("EmbeddingModel",),
    "images": ("PhotoError", "open_rgb"),
    "data.transforms": ("PhotoTransform", "ImageTransform"),
    "data.cache": ("DecodedCache",),
    "data.loading": ("Prefetcher",),
    "train.config": ("Experiment", "load_experiment"),
    "train.runs": ("load_run",),
    "train.large_batches": ("cached_backward", "gather_rows"),
    "train.objectives": ("Objective", "loss_from_config"),
    "metrics.revisited": ("evaluate_revisited", "annotator_vote", "distractor_scores"),
    "data.revisited_files": ("load_revisited", "load_distractors", "convert_ground_truth"),
    "data.town": ("load_town",),
    "retrieval.features": ("local_features", "Codebook"),
    "retrieval.asmk": ("ASMKIndex",),
    "retrieval.local": ("vlad", "verify", "hamming_query_expansion", "diffuse"),
    "retrieval.netvlad": ("NetVLAD",),
    "retrieval.descriptors": (
        "extract_descriptors",
        "gem_pool",
        "mac_pool",
        "rmac_pool",
        "spoc_pool",
        "crow_pool",
        "learn_whitening",
        "query_expansion",
    ),
    "reproduction.recipes": ("registry", "find_entry", "paper_rows"),
    "reproduction.runner": ("reproduce",),
    "reproduction.page": ("reproduction_page",),
    "retrieval.by_words": ("search_words",),
    "detection.loss": ("detection_ap",),
    "detection.networks": ("RankedRoIHeads", "small_detector", "voc_detector"),
    "detection.pages": ("GlyphPages",),
    "detection.training": ("train_detector",),
    "detection.voc": ("VOCFolder",),
    "show.figures": ("ranked_row",),
    "show.players": ("explore", "live_figures"),
    "show.ranklab": ("rank_lab", "RankLab"),
}
# names of the version before -> today's; they warn, and go with the next version
_RENAMED: dict[str, str] = {"test_protocols": "load_protocols", "read_photo": "open_rgb"}
_HOME = {name: module for module, names in _PUBLIC.items() for name in names}
__all__ = sorted(_HOME)


def __getattr__(name: str):
    if name in _HOME:
        try:
            value = getattr(_import_module(f"smoothap_nb.{_HOME[name]}"), name)
        except ModuleNotFoundError as error:
            from .extras import which_extra

            raise ImportError(which_extra(error, f"smoothap_nb.{name}")) from error
        globals()[name] = value
        return value
    if name in _RENAMED:
        import warnings

        warnings.warn(
            f"smoothap_nb.{name} is now called smoothap_nb.{_RENAMED[name]}; the old name goes with version 0.3",
            DeprecationWarning,
            stacklevel=2,
        )
        return __getattr__(_RENAMED[name])
    raise AttributeError(f"module 'smoothap_nb' has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *__all__})
