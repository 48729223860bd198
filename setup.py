"Build the package from settings.ini, the file that nbdev reads too."
from configparser import ConfigParser
from pathlib import Path

from setuptools import find_packages, setup

root = Path(__file__).parent
parser = ConfigParser(delimiters=["="], interpolation=None)
parser.read(root / "settings.ini", encoding="utf-8")
cfg = parser["DEFAULT"]

setup(
    name=cfg["lib_name"],
    version=cfg["version"],
    description=cfg["description"],
    long_description=(root / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author=cfg["author"],
    author_email=cfg["author_email"],
    url=cfg["git_url"],
    keywords=cfg["keywords"],
    license="MIT",
    packages=[cfg["lib_path"], *(f"{cfg['lib_path']}.{name}" for name in find_packages(cfg["lib_path"])), f"{cfg['lib_path']}.experiments"],
    package_data={f"{cfg['lib_path']}.data": ["*.safetensors"], f"{cfg['lib_path']}.show": ["static/*.js"], f"{cfg['lib_path']}.reproduction": ["papers/*.csv", "papers/*.toml"], f"{cfg['lib_path']}.experiments": ["*.toml", "**/*.toml"]},
    python_requires=f">={cfg['min_python']}",
    install_requires=cfg["requirements"].split(),
    extras_require={"dev": cfg["dev_requirements"].split()},
    entry_points={"console_scripts": [f"smoothap={cfg['lib_name']}.cli:main"]},
)
