"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""


from rushlight.export.pt2_archive import constants as constants
from rushlight.export.pt2_archive._package import load_pt2 as load_pt2
from rushlight.export.pt2_archive._package import package_pt2 as package_pt2
