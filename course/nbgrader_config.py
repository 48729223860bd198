"""nbgrader's settings for this course; also read by Formgrader in JupyterLab and by plain `nbgrader` commands, both
started in this folder.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import sandbox  # noqa: E402

c = get_config()  # noqa: F821
sandbox.configure(c, HERE)
