"RankLab: the browser's numbers are the library's, by hand it moves, and Python's side says what does not fit."

import re

import matplotlib

matplotlib.use("Agg")
import numpy as np
import pytest
import torch
from clean import run_clean

from smoothap_nb.show.figures import PALETTE
from smoothap_nb.ranking import ranks
from smoothap_nb.show.ranklab import GRADIENTS, RankLab, _module, _state, _still, rank_lab_html, rank_lab_numbers

FOUR = {"scores": [.9, .7, .6, .4], "relevance": [True, False, True, False], "levels": [2, 0, 2, 1]}


# ---- without a browser ---------------------------------------------------------------------------------------------

def test_same_bytes_on_every_run_and_small():
    text = rank_lab_html()
    assert text == rank_lab_html() and len(text.encode()) < 150_000
    assert text != rank_lab_html(tau=.1)


def test_needs_nothing_from_elsewhere():
    assert not re.findall(r"""(?:src|href)=["']?https?:|import\s*\(|from ["']http|@import""", rank_lab_html())


def numbers_with(scores, levels, picture, place, **settings):
    "What RankLab shows after one picture has been dragged to a place."
    moved = torch.tensor(scores, dtype=torch.float64)
    moved[picture - 1] = place
    levels = torch.tensor(levels)
    return rank_lab_numbers(moved, levels == levels.max(), levels, **settings)


def test_the_moves_that_lesson_07_asks_for():
    "The E past picture 4, past the second F, past picture 2: only an F that is passed lowers AP."
    row = [.965, .893, .851, .783, .675], [3, 0, 3, 0, 1]
    exact = [numbers_with(*row, 5, place)["exact"] for place in (.675, .79, .86, .9)]
    ap, graded = ([step[name] for step in exact] for name in ("average_precision", "h_ap"))
    assert ap == pytest.approx([5 / 6, 5 / 6, 3 / 4, 3 / 4])
    assert graded[1] > graded[0] and graded[2] < graded[1] < graded[3]
    assert ap[1] - ap[2] > graded[1] - graded[2] > 0


def test_the_arrows_that_lessons_05_and_06_ask_for():
    row = [.965, .893, .851, .783], [1, 0, 1, 0]
    wrong = [numbers_with(*row, 3, place, bins=20)["fast_ap"]["gradient"][2] > 0 for place in (.851, .80, .72, .69)]
    assert wrong == [False, False, True, False]  # a positive that FastAP pushes away, left of picture 4
    pushed = lambda place, lam: any(numbers_with(*row, 3, place, lam=lam, margin=0.)["rambo_ap"]["gradient"])
    assert not pushed(.851, .094) and pushed(.851, .095) and pushed(.827, .15) and not pushed(.825, .15)


def test_module_has_the_palette_of_the_figures():
    block = re.search(r"const COLOURS = \{(.*?)\};", _module(), re.S)[1]
    for name, colour in re.findall(r'(\w+): "(#\w+)"', block):
        assert PALETTE[name] == colour


def test_state_cannot_close_the_script():
    text = rank_lab_html(**FOUR, names=["</script><b>", "b", "c", "d"])
    assert text.count("</script>") == 1 and "<\\/script>" in text


def test_numbers_by_hand():
    numbers = rank_lab_numbers(
        torch.tensor(FOUR["scores"]), torch.tensor(FOUR["relevance"]), torch.tensor(FOUR["levels"])
    )
    assert numbers["exact"]["average_precision"] == pytest.approx(5 / 6)
    assert numbers["average_precision"]["gradient"] == [0] * 4
    assert set(numbers) == {*GRADIENTS, "exact"} and all(len(numbers[name]["gradient"]) == 4 for name in GRADIENTS)
    near = rank_lab_numbers(
        torch.tensor([0.9, 0.8, 0.7, 0.6], dtype=torch.float64),
        torch.tensor([True, False, True, False]),
        torch.tensor([1, 0, 1, 0]),
    )
    assert near["fast_ap"]["loss"] == pytest.approx(1 - .675)


def test_no_positive_is_nan_not_an_error():
    numbers = rank_lab_numbers(torch.tensor([.5, .4]), torch.tensor([False, False]), torch.tensor([0, 0]))
    assert np.isnan(numbers["smooth_ap"]["loss"]) and numbers["smooth_ap"]["gradient"] == [0, 0]


def test_levels_say_who_is_positive_and_the_other_way_round():
    assert _state(scores=[.5, .4, .3], levels=[2, 1, 0])["relevance"] == [True, False, False]
    assert _state(scores=torch.tensor([[.5, .4]]), relevance=torch.tensor([[True, False]]))["levels"] == [1, 0]


@pytest.mark.parametrize(
    "wrong, says",
    [
        ({"relevance": [True]}, "give the scores"),
        ({"scores": [0.5, 0.2]}, "relevance or levels"),
        ({"scores": [], "levels": []}, "one row"),
        ({"scores": [[0.1], [0.2]], "levels": [1, 0]}, "one query"),
        ({**FOUR, "relevance": [True]}, "shape"),
        ({**FOUR, "levels": [1]}, "shape"),
        ({**FOUR, "scores": [0.9, 0.7, 0.6, 2.0]}, r"\[-1, 1\]"),
        ({**FOUR, "scores": [0.9, 0.7, 0.6, float("nan")]}, "NaN"),
        ({**FOUR, "names": ["a"]}, "1 names for 4"),
        ({**FOUR, "images": []}, "0 images for 4"),
        ({**FOUR, "tau": 0}, "tau"),
        ({**FOUR, "lam": -1}, "lam"),
        ({**FOUR, "margin": -0.1}, "margin"),
        ({**FOUR, "alpha": True}, "alpha"),
        ({**FOUR, "bins": 0}, "bins"),
        ({**FOUR, "gradient": "triplet"}, "gradient"),
        ({**FOUR, "sigma": 1}, "no 'sigma'"),
        ({**FOUR, "levels": [2, 0, 2, -1]}, "below 0"),
    ],
)
def test_wrong_calls_are_named(wrong, says):
    with pytest.raises((TypeError, ValueError), match=says):
        rank_lab_html(**wrong)


def test_still_picture_of_glyphs_and_of_tiles():
    import matplotlib.pyplot as plt

    for state in ({}, FOUR):
        fig = _still(_state(**state))
        assert fig.axes[0].get_xlabel() and fig.axes[0].get_ylabel()
        plt.close(fig)


@pytest.mark.parametrize(
    "gradient, says",
    [("average_precision", "No arrows: the exact AP pushes nobody"), ("smooth_ap", "Arrows: where Smooth-AP pushes")],
)
def test_still_picture_says_whether_it_has_arrows(gradient, says):
    import matplotlib.pyplot as plt

    fig = _still(_state(**FOUR, gradient=gradient))
    assert fig.axes[0].get_title(loc="left").endswith(says) or fig.axes[0].get_title().endswith(says)
    plt.close(fig)


def test_widget_is_imported_when_it_is_made():
    code = (
        "import sys, smoothap_nb, smoothap_nb.show.ranklab; smoothap_nb.RankLab; assert not {'anywidget', "
        "'ipywidgets', 'traitlets'} & set(sys.modules)"
    )
    done = run_clean(code)
    assert done.returncode == 0, done.stderr


def test_widget_without_anywidget_says_what_to_install():
    code = ("import sys; sys.modules['anywidget'] = None\nfrom smoothap_nb import RankLab\ntry: RankLab()\n"
            "except ImportError as e: assert 'pip install anywidget' in str(e), e\nelse: raise SystemExit('no error')")
    done = run_clean(code)
    assert done.returncode == 0, done.stderr


def test_widget_reads_and_sets():
    pytest.importorskip("anywidget")
    import traitlets

    lab, seen = RankLab(**FOUR), []
    lab.observe(lambda change: seen.append(change["new"]), "scores")
    lab.scores = torch.tensor([.9, .5, .6, .4], dtype=torch.float64)
    assert seen == [[.9, .5, .6, .4]] and lab.numbers()["exact"]["average_precision"] == 1
    for name, value in (
        ("scores", [0.9]),
        ("scores", [2.0] * 4),
        ("tau", 0.0),
        ("levels", [3, 0, 0, 0]),
        ("gradient", "triplet"),
        ("margin", -1.0),
    ):
        with pytest.raises((traitlets.TraitError, ValueError)):
            setattr(lab, name, value)
    assert lab.scores == [.9, .5, .6, .4] and lab.tau == .01


# ---- in a browser --------------------------------------------------------------------------------------------------

class Page:
    "A page with some RankLabs on it, and everything that its console complained about."

    def __init__(self, browser, tmp_path, *bodies, width=900, height=1100, **context):
        path = tmp_path / "page.html"
        head = (
            '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" '
            'content="width=device-width"><title>RankLab</title>'
        )
        path.write_text(head + "".join(bodies), encoding="utf-8")
        self.tab, self.problems = (
            browser.new_context(viewport={"width": width, "height": height}, **context).new_page(),
            [],
        )
        self.tab.on("console", lambda m: self.problems.append(m.text) if m.type in ("error", "warning") else None)
        self.tab.on("pageerror", lambda e: self.problems.append(str(e)))
        self.tab.goto(path.as_uri())
        if bodies and "data-ranklab" in bodies[0]:
            self.tab.wait_for_selector(".rl-item")

    def card(self, name, lab=0):
        return float(
            self.tab.locator(".ranklab")
            .nth(lab)
            .locator(f'.rl-card:has(input[value="{name}"]) strong')
            .get_attribute("data-value")
        )

    def score(self, i, lab=0):
        return float(self.item(i, lab).get_attribute("aria-valuenow"))

    def item(self, i, lab=0):
        return self.tab.locator(".ranklab").nth(lab).locator(".rl-item").nth(i)

    def pushes(self):
        return {
            int(a.get_attribute("data-index")): float(a.get_attribute("data-push"))
            for a in self.tab.locator(".rl-arrow").all()
        }

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.tab.context.close()
        if error[0] is None:
            assert self.problems == []


def random_states(count=80):
    "Rankings with ties, without positives, with one, with nothing but positives; every setting anywhere in its range."
    rng = np.random.default_rng(8)
    for k in range(count):
        size = int(rng.integers(1, 13))
        scores = rng.uniform(-1, 1, size) if k % 3 else rng.integers(-4, 5, size) / 8  # every third one full of ties
        share = (0.0, 1.0, 0.4, 0.4, 0.4)[k % 5]
        yield {
            "scores": scores.tolist(),
            "relevance": (rng.random(size) < share).tolist(),
            "levels": [0] * size if k % 5 == 0 else rng.integers(0, 4, size).tolist(),
            "tau": 10 ** rng.uniform(-3, -0.5),
            "lam": 10 ** rng.uniform(-1.5, 1),
            "margin": float(rng.uniform(0, 0.3)) if k % 4 else 0.0,
            "alpha": float(rng.uniform(0, 5)),
            "bins": int(rng.integers(1, 25)),
        }


def interpolated(state, loss):
    """RaMBO's interpolation by its definition: the loss at the ranks, plus L_lambda less its linearisation (lesson
    05), from the library's ranks.
    """
    scores, relevance = torch.tensor([state["scores"]], dtype=torch.float64), torch.tensor([state["relevance"]])
    shifted = scores + torch.where(relevance, -state["margin"] / 2, state["margin"] / 2) * (state["margin"] > 0)
    reach, place = state["lam"] * scores.shape[1], ranks(shifted).double().requires_grad_()
    among = torch.stack([((shifted[0] >= s) & relevance[0]).sum() for s in shifted[0]]).double()
    each = 1 - among / place if loss == "rambo_ap" else torch.log1p(torch.log1p((place - among).clamp(min=0)))
    value = each[relevance].mean()
    g, = torch.autograd.grad(value, place)
    g = torch.where(relevance, g, torch.zeros_like(g))
    if loss == "rambo_recall":  # the clamp's corner at 0 negatives ahead: the slope there is 1
        behind = (place.detach() - among).clamp(min=0)
        g = torch.where(
            relevance, 1 / ((1 + behind) * (1 + torch.log1p(behind))) / relevance.sum(), torch.zeros_like(g)
        )

    def smallest(s):
        return (s * ranks(s, ties="average")).sum()

    return (
        value + (smallest(shifted + reach * g) - smallest(shifted)) / reach - (g * ranks(shifted, ties="average")).sum()
    ).item()


@pytest.mark.browser
def test_the_browser_computes_what_the_library_computes(browser, tmp_path):
    states = list(random_states())
    with Page(
        browser, tmp_path, f'<script type="module">{_module()}\nwindow.lab = {{ compute, ranks, mount }};</script>'
    ) as page:
        page.tab.wait_for_function("window.lab")
        found = page.tab.evaluate("(states) => states.map((state) => lab.compute(state))", states)
    ties = empty = 0
    for state, theirs in zip(states, found):
        rows = (
            torch.tensor(state["scores"], dtype=torch.float64),
            torch.tensor(state["relevance"]),
            torch.tensor(state["levels"]),
        )
        ours = rank_lab_numbers(*rows, **{name: state[name] for name in ("tau", "lam", "margin", "alpha", "bins")})
        for name in GRADIENTS:
            assert theirs[name]["loss"] == pytest.approx(ours[name]["loss"], abs=1e-6, nan_ok=True), (name, state)
            assert theirs[name]["gradient"] == pytest.approx(ours[name]["gradient"], rel=1e-6, abs=1e-6), (name, state)
        assert theirs["average_precision"]["value"] == pytest.approx(
            ours["exact"]["average_precision"], abs=1e-6, nan_ok=True
        )
        assert theirs["h_ap"]["exact"] == pytest.approx(ours["exact"]["h_ap"], abs=1e-6, nan_ok=True)
        if any(state["relevance"]):
            for name in ("rambo_ap", "rambo_recall"):
                assert theirs[name]["interpolated"] == pytest.approx(interpolated(state, name), abs=1e-6), (name, state)
        ties += len(set(state["scores"])) < len(state["scores"])
        empty += not any(state["relevance"])
    assert len(states) >= 50 and ties >= 10 and empty >= 5


@pytest.mark.browser
def test_dragging_a_picture_changes_the_numbers_as_the_library_says(browser, tmp_path):
    with Page(browser, tmp_path, rank_lab_html(**FOUR)) as page:
        assert page.card("average_precision") == pytest.approx(5 / 6)
        box = page.item(1).bounding_box()
        x, y = box["x"] + 10, box["y"] + 20
        page.tab.mouse.move(x, y)
        page.tab.mouse.down()
        page.tab.mouse.move(x - 60, y + 3)
        page.tab.mouse.move(x - 220, y + 5)
        page.tab.mouse.up()
        moved = page.score(1)
        assert moved < .6
        page.tab.mouse.move(x, y)  # the button is up: nothing moves any more
        assert page.score(1) == moved and page.tab.evaluate("document.activeElement.className") == "rl-item"
        ours = rank_lab_numbers(
            torch.tensor([0.9, moved, 0.6, 0.4], dtype=torch.float64),
            torch.tensor(FOUR["relevance"]),
            torch.tensor(FOUR["levels"]),
        )
        assert page.card("average_precision") == 1
        assert page.card("smooth_ap") == pytest.approx(1 - ours["smooth_ap"]["loss"], abs=1e-6)
        assert page.card("fast_ap") == pytest.approx(1 - ours["fast_ap"]["loss"], abs=1e-6)
        assert page.card("h_ap") == pytest.approx(ours["exact"]["h_ap"], abs=1e-6)


@pytest.mark.browser
def test_a_finger_can_drag_too(browser, tmp_path):
    with Page(browser, tmp_path, rank_lab_html(**FOUR), width=390, height=900, has_touch=True, is_mobile=True) as page:
        page.item(0).scroll_into_view_if_needed()
        box, touch = page.item(0).bounding_box(), page.tab.context.new_cdp_session(page.tab)
        points = [(box["x"] + 18 - step, box["y"] + 18) for step in (0, 20, 60, 110)]
        for kind, (x, y) in zip(("touchStart", "touchMove", "touchMove", "touchMove"), points):
            touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y}]})
        touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        assert page.score(0) < .75
        assert page.tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), (
            "no sideways scrolling at 390 px"
        )


@pytest.mark.browser
def test_the_keyboard_does_everything(browser, tmp_path):
    with Page(browser, tmp_path, rank_lab_html(**FOUR, tau=.05)) as page:
        picture, press = page.item(2), page.tab.keyboard.press
        picture.focus()
        assert "positive, level 2 of 2" in picture.get_attribute("aria-label") and "rank 3" in picture.get_attribute(
            "aria-valuetext"
        )
        before = page.card("smooth_ap")
        press("ArrowRight")
        assert page.score(2) == pytest.approx(.605) and page.card("smooth_ap") > before
        press("Shift+ArrowRight"), press("PageUp")
        assert page.score(2) == pytest.approx(.705) and "rank 2" in picture.get_attribute("aria-valuetext")
        press("End")
        assert page.score(2) == 1
        press(" ")
        assert "negative, level 0" in picture.get_attribute("aria-label") and page.card(
            "average_precision"
        ) == pytest.approx(0.5)
        press("l"), press("l")
        assert "positive, level 2" in picture.get_attribute("aria-label") and page.card("average_precision") == 1
        page.tab.locator('input[value="fast_ap"]').focus()
        press("ArrowRight")
        assert page.tab.locator('input[value="h_ap"]').is_checked()
        bar = page.tab.get_by_label("τ (Smooth-AP, H-AP)")
        bar.focus()
        before = page.card("smooth_ap")
        press("End")
        assert bar.get_attribute("aria-valuetext") == "0.3" and page.card("smooth_ap") < before
        page.tab.get_by_role("button", name="Reset").focus()
        press("Enter")
        assert page.score(2) == .6 and bar.get_attribute("aria-valuetext") == "0.05"
        page.tab.wait_for_function("document.querySelector('[role=status]').textContent.includes('Exact AP 0.833')")
        assert page.tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


@pytest.mark.browser
def test_arrows_are_the_library_s_descent_directions(browser, tmp_path):
    state = FOUR | {"tau": .1, "lam": 2.}
    ours = rank_lab_numbers(
        torch.tensor(state["scores"], dtype=torch.float64),
        torch.tensor(state["relevance"]),
        torch.tensor(state["levels"]),
        tau=0.1,
        lam=2.0,
    )
    with Page(browser, tmp_path, rank_lab_html(**state)) as page:
        for name in GRADIENTS:
            page.tab.check(f'input[value="{name}"]', force=True)
            for i, push in page.pushes().items():
                assert push == pytest.approx(-ours[name]["gradient"][i], abs=1e-5), name
            assert bool(page.pushes()) == any(abs(g) > 1e-3 for g in ours[name]["gradient"]), name
        page.tab.check('input[value="smooth_ap"]', force=True)
        before = page.card("smooth_ap")
        page.tab.get_by_role("button", name="Step downhill").click()
        assert page.card("smooth_ap") > before


@pytest.mark.browser
def test_several_on_a_page_do_not_meet(browser, tmp_path):
    with Page(browser, tmp_path, rank_lab_html(**FOUR), rank_lab_html(**FOUR), rank_lab_html()) as page:
        assert page.tab.locator(".ranklab").count() == 3 and page.tab.locator(".rl-item").count() == 4 + 4 + 9
        page.item(0, lab=1).focus()
        page.tab.keyboard.press("Home")
        assert page.score(0, lab=1) < page.score(0, lab=0) == .9
        page.tab.locator(".ranklab").nth(2).locator('input[value="h_ap"]').check(force=True)
        assert page.tab.locator('input[value="smooth_ap"]:checked').count() == 2


@pytest.mark.browser
def test_reduced_motion_and_tiny_rankings(browser, tmp_path):
    with Page(
        browser,
        tmp_path,
        rank_lab_html(scores=[0.5], relevance=[False]),
        rank_lab_html(scores=[0.5], relevance=[True]),
        reduced_motion="reduce",
    ) as page:
        assert page.tab.evaluate("getComputedStyle(document.querySelector('.rl-cell')).transitionDuration") in (
            "0s",
            "",
        )
        assert "No positive" in page.tab.locator(".rl-note").first.inner_text() and np.isnan(page.card("smooth_ap"))
        assert page.card("average_precision", lab=1) == 1


@pytest.mark.browser
def test_everything_fits_a_phone(browser, tmp_path):
    body = f'<body style="margin:16px">{rank_lab_html()}</body>'
    with Page(browser, tmp_path, body, width=390, height=900) as page:
        for name in GRADIENTS:
            page.tab.check(f'input[value="{name}"]', force=True)
            wide = page.tab.evaluate(
                "[...document.querySelectorAll('.ranklab *:not(svg *):not(.rl-hidden)')].filter(e => "
                "e.getBoundingClientRect().right > 382).map(e => e.className)"
            )
            assert wide == [] and page.tab.evaluate("document.documentElement.scrollWidth") <= 390, name
            assert page.tab.evaluate(
                "[...document.querySelectorAll('.rl-stage svg text')].every(t => t.getBoundingClientRect().right < 384)"
            ), name
