"""nbgrader's settings for this course; also read by Formgrader in JupyterLab and by plain `nbgrader` commands, both
started in this folder.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import sandbox  # noqa: E402

c = get_config()  # noqa: F821
c.CourseDirectory.course_id = "smoothap"
c.CourseDirectory.db_url = f"sqlite:///{HERE}/gradebook.db?timeout=120"  # two graders write to it
sandbox.configure(c, HERE)
