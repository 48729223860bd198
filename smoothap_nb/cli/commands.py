"""`smoothap`: train, evaluate, search, and find out what this machine can do; in the order of the help."""

from __future__ import annotations

from .app import app, run, say, table
from .captions import captions
from .datasets import data_app, data_check, data_list, data_miniature
from .doctor import checks, doctor
from .finding import search
from .papers import reproduce, results
from .runs import evaluate, experiments, train

__all__ = ['app', 'data_app', 'say', 'train', 'table', 'evaluate', 'search', 'reproduce', 'results', 'data_list',
           'data_check', 'data_miniature', 'experiments', 'doctor', 'checks', 'captions', 'run']

for command in (train, evaluate, search, reproduce, results, experiments, doctor, captions):
    app.command()(command)
app.add_typer(data_app, name="data")
