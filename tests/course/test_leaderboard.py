"""The research project's workbench and its leaderboard: recipes are checked and run again, files are read as data,
names cannot break the page.
"""

import json
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

ROOT = Path(__file__).resolve().parents[2]
import leaderboard
import project

SET = leaderboard.SET


def hand_in(folder: Path, student: str, content) -> Path:
    place = folder / student / SET
    place.mkdir(parents=True)
    path = place / "submission.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def sent(**changes):
    return {"name": "Ada", "recipe": {"steps": 2}, "claim": 0.5, **changes}


# The workbench

@pytest.mark.parametrize(
    "recipe, words",
    [
        ([1], "a recipe is a dictionary"),
        ({"learning_rate": 1}, "unknown setting 'learning_rate'"),
        ({"steps": 0}, "steps must be a whole number from 1"),
        ({"steps": 1.5}, "whole number"),
        ({"steps": True}, "whole number"),
        ({"lr": float("nan")}, "lr must be a number"),
        ({"pool": "mean"}, "pool must be one of avg, max"),
        ({"classes": 200, "images": 8}, "a batch holds at most 512"),
        ({"loss": "eval"}, "loss must be one of"),
        ({"loss_settings": {"tau": [1]}}, "numbers and words"),
        ({"loss_settings": {"sigma": 1.0}}, "smooth_ap has no setting 'sigma'"),
        ({"loss_settings": {"tau": -1.0}}, "smooth_ap refuses its settings: tau"),
        ({"loss": "recall", "loss_settings": {"memory": 10**9}}, "recall has no setting 'memory'"),
        ({"steps": 20_000}, "the full budget is 400"),
        ({"loss": "sup_ap", "loss_settings": {"delta": 10**400}}, "sup_ap refuses its settings"),
    ],
)
def test_a_recipe_that_cannot_run_is_told_why(recipe, words):
    with pytest.raises(project.RecipeError, match=words):
        project.check_recipe(recipe)


def test_every_loss_trains_a_step():
    for loss in project.LOSSES:
        network = project.train(
            {
                "loss": loss,
                "steps": 1,
                "classes": 48,
                "width": 4,
                **({"loss_settings": {"tau": 0.1}} if loss == "smooth_ap" else {}),
            },
            "quick",
        )
        assert all(torch.isfinite(p).all() for p in network.parameters()), loss


def test_cost_counts_what_the_network_does():
    counted, side = 0, project.SIDE
    network = project.Network(5, 7, "avg")

    def count(layer, inputs, output):
        nonlocal counted
        counted += output[0].numel() * layer.weight[0].numel()
    for layer in network.modules():
        if isinstance(layer, (torch.nn.Conv2d, torch.nn.Linear)):
            layer.register_forward_hook(count)
    network.eval()(torch.zeros(1, 1, side, side))
    recipe = {**project.BASELINE, "width": 5, "dim": 7, "classes": 3, "images": 2, "steps": 11}
    assert project.cost(recipe) == 3 * counted * 6 * 11


def test_the_same_recipe_and_seed_give_the_same_network():
    recipe = {"steps": 3, "classes": 48, "width": 4}
    first = project.train(recipe, "quick", 3)
    project._TRAINED.clear()
    again, other = project.train(recipe, "quick", 3), project.train(recipe, "quick", 4)
    assert all(torch.equal(a, b) for a, b in zip(first.state_dict().values(), again.state_dict().values()))
    assert not torch.equal(first.head.weight, other.head.weight)


@pytest.mark.slow
def test_a_loss_of_ones_own_competes_and_gets_the_same_place_again():
    from smoothap_nb import smooth_ap

    def own(scores, relevance):
        return smooth_ap(scores, relevance, 0.1).nanmean()

    recipe = {"steps": 3, "classes": 48, "width": 4}
    first, again = (project.train(recipe, "quick", 3, objective=own) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first.state_dict().values(), again.state_dict().values()))
    entries = {"raw": project.Network(4, 8, "avg").eval(), "mine": first}
    board = project.standings(entries)
    assert board == project.standings(entries) and board.count("\n") == 2
    values = {line.split()[2]: float(line.split()[1]) for line in board.split("\n")[1:]}
    assert values["mine"] == pytest.approx(float(project.measure(first)[0].mean()), abs=6e-4)


@pytest.mark.slow
def test_the_leaderboard_gives_a_recipe_the_same_number_again():
    recipe = {**project.BASELINE, "steps": 3, "classes": 48, "width": 4}
    found = []
    for _ in range(2):
        project._TRAINED.clear()
        found.append(leaderboard.run_recipe(recipe, 7, 2)["values"])
    assert found[0] == found[1] and len(set(found[0])) == 2


def test_held_out_characters_are_new_and_distortions_follow_the_seed():
    _, val = project.held_out("val")
    images, test = project.held_out("test", 0)
    others, _ = project.held_out("test", 1)
    train = project.Glyphs("train", size=project.SIDE).labels[:, -1].unique()
    assert not torch.isin(val, train).any() and not torch.isin(test, train).any() and not torch.isin(test, val).any()
    assert images.shape == others.shape and not torch.equal(images, others)


# What is handed in

class Bomb:
    def __reduce__(self):
        return (Path.touch, (Path("exploded"),))


@pytest.mark.parametrize(
    "content, words",
    [
        (pickle.dumps(Bomb()), "is not JSON"),
        (b"[" * 10_000, "is not JSON"),
        (b"{" + b" " * 20_000 + b"}", "larger than"),
        (b"\xff\xfe", "is not JSON"),
        ([1], "exactly the keys"),
        (sent(more=1), "exactly the keys"),
        (sent(name=""), "1 to 40"),
        (sent(name="x" * 41), "1 to 40"),
        (sent(claim=True), "claim is a mAP"),
        (sent(claim=71.5), "claim is a mAP"),
        (b'{"name": "a", "claim": NaN, "recipe": {}}', "NaN is not a number"),
        (sent(recipe={"steps": 10**9}), "steps must be"),
        (sent(recipe="import os"), "a recipe is a dictionary"),
    ],
)
def test_a_submission_is_read_as_data(tmp_path, monkeypatch, content, words):
    monkeypatch.chdir(tmp_path)
    path = hand_in(tmp_path, "ada", content)
    with pytest.raises(project.RecipeError, match=words):
        project.read_submission(path)
    assert not (tmp_path / "exploded").exists()


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "real.json").write_text(json.dumps(sent()))
    (tmp_path / "submission.json").symlink_to(tmp_path / "real.json")
    with pytest.raises(project.RecipeError, match="is not a file"):
        project.read_submission(tmp_path / "submission.json")


def test_what_is_written_is_read_back(tmp_path):
    found = project.write_submission(tmp_path / "submission.json", "Ada", {"steps": 9}, 0.43219)
    assert found["claim"] == 0.4322 and found["recipe"] == {**project.BASELINE, "steps": 9}


# The board

def test_the_board_ranks_remembers_and_says_who_could_not_be_run(tmp_path, monkeypatch):
    runs = []

    def run(recipe, secret, seeds, seconds):
        runs.append(recipe["steps"])
        value = recipe["steps"] / 100
        return (
            {"error": "took more than 9 s of CPU time"}
            if recipe["steps"] == 66
            else {"mAP": value, "values": [value - 0.01, value + 0.01], "cpu_seconds": 2.0}
        )

    monkeypatch.setattr(leaderboard, "run_limited", run)
    submitted = tmp_path / "submitted"
    for student, recipe in (("ada", {"steps": 20}), ("bob", {"steps": 40}), ("slow", {"steps": 66})):
        hand_in(submitted, student, sent(name=student.title(), recipe=recipe))
    hand_in(submitted, "eve", pickle.dumps({"name": 1}))
    (submitted / "absent").mkdir()
    (submitted / "forgot" / SET).mkdir(parents=True)
    (submitted / "copier").mkdir()
    (submitted / "copier" / SET).symlink_to(submitted / "ada" / SET)
    for _ in range(2):
        assert leaderboard.main([str(submitted), "--out", str(tmp_path / "board.md")]) == 0
    page = (tmp_path / "board.md").read_text()
    assert runs == [20, 40, 66, 66], "a recipe is run once, a failure is tried again"
    assert page.index("| 1 | Bob (bob) | 0.400 (0.390 to 0.410)") < page.index("| 2 | Ada (ada) | 0.200")
    assert (
        "| slow | took more than 9 s of CPU time |" in page
        and "| eve | submission.json is not JSON" in page
        and "absent" not in page
    )
    assert "| forgot | no submission.json beside the notebook" in page and "| copier | the folder is a link" in page
    (tmp_path / "board.json").write_text("{ cut short")
    assert leaderboard.main([str(submitted), "--out", str(tmp_path / "board.md")]) == 0 and runs[4:] == [20, 40, 66]


def test_names_cannot_break_the_page():
    entry = {
        "student": "eve",
        "name": "a|b\n<script>x</script>[l](javascript:1)`",
        "mAP": 0.5,
        "values": [0.5],
        "claim": 0.5,
        "cost": 1e9,
        "cpu_seconds": 1.0,
        "changed": {},
    }
    page = leaderboard.board([entry], 1)
    row, = [line for line in page.splitlines() if line.startswith("| 1 |")]
    assert row.count("|") == 8 and "<script>" not in page and "](" not in page and "`" not in row


def test_an_empty_folder_is_told(tmp_path, capsys):
    assert leaderboard.main([str(tmp_path / "nobody"), "--out", str(tmp_path / "b.md")]) == 1
    assert "no submissions" in capsys.readouterr().err and not (tmp_path / "b.md").exists()


def test_embeddings_are_measured_anew_and_read_as_data(tmp_path):
    _, labels = project.held_out("test", 5)
    perfect = torch.nn.functional.one_hot(labels.unique(return_inverse=True)[1]).float()
    for student, tensor in (
        ("perfect", perfect),
        ("short", perfect[:-1]),
        ("broken", perfect * float("nan")),
        ("zero", 0 * perfect),
    ):
        (tmp_path / student / SET).mkdir(parents=True)
        save_file({"embeddings": tensor.contiguous()}, tmp_path / student / SET / "embeddings.safetensors")
    (tmp_path / "pickled" / SET).mkdir(parents=True)
    torch.save({"embeddings": perfect}, tmp_path / "pickled" / SET / "embeddings.safetensors")
    found = {e["student"]: e for e in leaderboard.collect(tmp_path, 5, 1, 9, tmp_path / "c.json", True)}
    assert found["perfect"]["from_embeddings"] == pytest.approx(1)
    assert (
        "they need" in found["short"]["error"]
        and "NaN" in found["broken"]["error"]
        and "row of zeros" in found["zero"]["error"]
    )
    assert "is not safetensors" in found["pickled"]["error"]
    assert not any("mAP" in e for e in found.values()) and "nobody has checked" in leaderboard.board(
        list(found.values()), 1
    )


@pytest.mark.slow
def test_a_recipe_is_run_by_another_process(tmp_path):
    hand_in(tmp_path / "submitted", "ada", sent(recipe={"steps": 2, "width": 4, "classes": 48}))
    assert (
        leaderboard.main(
            [str(tmp_path / "submitted"), "--out", str(tmp_path / "b.md"), "--seeds", "2", "--seconds", "120"]
        )
        == 0
    )
    entry, = json.loads((tmp_path / "b.json").read_text()).values()
    assert 0 < entry["mAP"] < 1 and len(set(entry["values"])) == 2 and "steps 2" in (tmp_path / "b.md").read_text()


@pytest.mark.slow
def test_a_recipe_that_takes_too_long_is_stopped():
    assert "took more than" in leaderboard.run_limited({**project.BASELINE, "steps": 5000}, 1, 1, 4)["error"]
