"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""

from rushlight.jit.annotations import _BroadcastingList as _BroadcastingList

from typing import Any as Any
BroadcastingList1: _BroadcastingList
BroadcastingList2: _BroadcastingList
BroadcastingList3: _BroadcastingList
from typing import Dict as Dict
from typing import List as List
from typing import Optional as Optional
from typing import Tuple as Tuple
from typing import Union as Union
