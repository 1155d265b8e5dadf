c = get_config()  # noqa: F821
c.LabApp.default_url = "/lab/tree/chapters/00_start_here.ipynb"
