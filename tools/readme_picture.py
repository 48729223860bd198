"""Take the README's picture from a run's report: the first two queries with what each competitor returns.

    python tools/readme_picture.py runs/demo
"""

import json
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(run: Path) -> None:
    from playwright.sync_api import sync_playwright

    browser_path = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser_path is None:
        sys.exit("no chromium on this machine (Debian: apt-get install chromium)")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 980, "height": 900})
        page.goto((run / "report.html").resolve().as_uri())
        rows = 2 * len(json.loads((run / "metrics.json").read_text(encoding="utf-8"))["metrics"])
        first, last = page.locator("h3").nth(0).bounding_box(), page.locator(".row").nth(rows - 1).bounding_box()
        target = ROOT / "docs" / "images" / "report-rows.png"
        target.parent.mkdir(exist_ok=True)
        page.screenshot(path=target, full_page=True, clip={"x": first["x"] - 8, "y": first["y"] - 8, "width": 900,
                                                           "height": last["y"] + last["height"] - first["y"] + 16})
        browser.close()
    print(target, f"{target.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
