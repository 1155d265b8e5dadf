# JupyterLab's Assignment List reads its settings from inside answers/, where only JUPYTER_CONFIG_PATH leads here.
from pathlib import Path

load_subconfig("nbgrader_config.py", path=str(Path(__file__).resolve().parent.parent))  # noqa: F821
