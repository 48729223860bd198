"The layering of the house: imports run one way, whether at the top of a module or inside a function."

import ast
from pathlib import Path

import pytest

import smoothap_nb

HOME = Path(smoothap_nb.__file__).parent
# each may import itself and what is named; `show` draws, and knows nothing of training
BELOW = {
    "extras": set(), "naming": set(), "checks": {"naming"}, "files": {"checks"}, "images": {"checks", "files"},
    "similarity": {"checks"}, "ranking": {"checks", "similarity"},
}
BASE = {"extras", "naming", "checks", "files", "images", "similarity", "ranking"}
BELOW["metrics"] = BASE
BELOW["losses"] = BASE | {"metrics"}
BELOW["data"] = BASE | {"losses", "metrics"}
BELOW["show"] = BASE | {"losses", "metrics", "data"}
BELOW["train"] = BELOW["show"] | {"show"}
BELOW["retrieval"] = BELOW["train"] | {"train"}
BELOW["detection"] = BELOW["train"] | {"train"}
BELOW["reproduction"] = BELOW["train"] | {"train", "retrieval", "detection"}
BELOW["cli"] = BELOW["reproduction"] | {"reproduction"}
OUTSIDE = {
    "losses": {"torch", "numpy", "numba"},
    "metrics": {"torch", "numpy", "numba", "faiss", "torchmetrics", "tqdm"},
    "ranking": {"torch", "numpy"},
    "checks": {"torch"},
}
OPTIONAL = {  # their users alone import them
    "losses/pml.py": {"pytorch_metric_learning"}, "losses/smooth_triton.py": {"triton"},
}
PENDING: dict[str, set[str]] = {}  # what still points the wrong way; this list only shrinks
MODULES = sorted(
    path.relative_to(HOME)
    for path in HOME.rglob("*.py")
    if path.name not in ("_modidx.py",) and path.parent != HOME or path.stem in BASE
)


def imported(path: Path) -> tuple[set[str], set[str]]:
    "What a module imports: packages of the house, packages of others."
    ours, theirs = set(), set()
    public = smoothap_nb._HOME
    for node in ast.walk(ast.parse((HOME / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            theirs |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            words = node.module.split(".") if node.module else []
            if node.level:
                words = ["smoothap_nb", *path.parent.parts[:len(path.parent.parts) - node.level + 1], *words]
            if words[0] != "smoothap_nb":
                theirs.add(words[0])
            elif len(words) > 1:
                ours.add(words[1])
            else:  # from smoothap_nb import name
                ours |= {
                    public.get(alias.name, alias.name).split(".")[0]
                    for alias in node.names
                    if not alias.name.startswith("__")
                }
    return ours, theirs


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_imports_run_one_way(path):
    room = path.parts[0].removesuffix(".py")
    ours, theirs = imported(path)
    wrong = ours - {room} - BELOW[room] - PENDING.get(room, set())
    assert not wrong, f"{path} imports {', '.join(sorted(wrong))}, which stand above it"
    if room in OUTSIDE:
        import sys

        known = OUTSIDE[room] | OPTIONAL.get(path.as_posix(), set()) | {"smoothap_nb"}
        foreign = theirs - known - set(sys.stdlib_module_names)
        assert not foreign, f"{path} imports {', '.join(sorted(foreign))}"
